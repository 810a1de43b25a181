"""The conditions of a measurement."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from typing import Any

from rookery.common.cpus import cpu_capacity, cpus_in_use, processor_name
from rookery.common.version import __version__

_LIBRARIES = ("rookery", "gymnasium", "numpy", "stable-baselines3", "torch")


def conditions(libraries: Sequence[str] = _LIBRARIES) -> dict[str, Any]:
    """Return the machine, the interpreter and the versions of libraries.

    The call takes a third of a second, during which ``cores_in_use`` is measured. The load average,
    by contrast, also includes processes that ended within the last minutes.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": cpu_capacity(),
        "processor": processor_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in libraries},
        "load_average": load(),
        "cores_in_use": round(cpus_in_use(), 2),
    }


def load() -> float | None:
    """Return the load average over one minute; None if the system has none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _version(distribution: str) -> str | None:
    if distribution == "rookery":
        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
