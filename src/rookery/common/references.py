"""References to importable objects as text: ``module:qualname``."""

from __future__ import annotations

import importlib
from typing import Any


def reference(thing: Any) -> str | None:
    """Return ``module:qualname``, or None for lambdas, local functions and partials."""
    name = getattr(thing, "__qualname__", "<none>")
    return None if "<" in name else f"{thing.__module__}:{name}"


def imported(address: str) -> Any:
    """Import the object with the reference ``module:qualname``.

    Raises:
        ImportError, AttributeError: it does not exist.
    """
    module, _, path = address.partition(":")
    value: Any = importlib.import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value
