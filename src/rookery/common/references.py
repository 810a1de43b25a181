"""Names of what can be imported, as files hold them: ``module:qualname``."""

from __future__ import annotations

import importlib
from typing import Any


def reference(thing: Any) -> str | None:
    """``module:qualname`` of something importable; None for lambdas, local functions, partials."""
    name = getattr(thing, "__qualname__", "<none>")
    return None if "<" in name else f"{thing.__module__}:{name}"


def imported(address: str) -> Any:
    """Import what `reference` named.

    Raises:
        ImportError, AttributeError: there is no such thing.
    """
    module, _, path = address.partition(":")
    value: Any = importlib.import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value
