"""The backends of rookery, as options of ``make_vec``. A new one is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest


@dataclass(frozen=True)
class Backend:
    """One way to run envs.

    Attributes:
        options: what ``make_vec`` is told.
        has_workers: whether envs live in other processes, all of them or some.
    """

    options: Mapping[str, Any]
    has_workers: bool = False


_PROCESS = MappingProxyType({"backend": "process"})

# Every contract that a vector env has is checked on each of these.
BACKENDS = {
    "serial": Backend({"backend": "serial"}),
    "process": Backend({**_PROCESS, "num_workers": 2}, has_workers=True),
    "caller-steps": Backend({**_PROCESS, "num_workers": 1, "caller_steps": True}, has_workers=True),
}

# Where the way that workers start and divide the envs could matter too.
VARIANTS = {
    **BACKENDS,
    **{
        f"{method}-{workers}": Backend(
            {**_PROCESS, "num_workers": workers, "start_method": method}, has_workers=True
        )
        for method in ("forkserver", "spawn", "fork")
        for workers in (1, 2, 3)
    },
    "caller-steps-2": Backend(
        {**_PROCESS, "num_workers": 2, "caller_steps": True}, has_workers=True
    ),
    "isolated": Backend({"isolate": True}, has_workers=True),
    "auto": Backend({"backend": "auto"}),
}

# How many workers there are matters with one way to start them: it is no matter of the others.
_WITH_WHOLE = ("forkserver-2", "spawn-1", "spawn-3", "fork-1", "fork-3")


def variants() -> list[Any]:
    """Parameters of a test: every variant, some of them with --whole only."""
    return [
        pytest.param(name, marks=pytest.mark.whole) if name in _WITH_WHOLE else name
        for name in VARIANTS
    ]
