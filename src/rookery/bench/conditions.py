"""Under which conditions something was measured."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rookery.common.cpus import cpu_capacity, cpus_in_use

_LIBRARIES = ("rookery", "gymnasium", "numpy", "stable-baselines3", "torch")


def conditions(libraries: Sequence[str] = _LIBRARIES) -> dict[str, Any]:
    """The machine, the interpreter and the libraries, as far as results depend on them.

    It takes a third of a second: ``cores_in_use`` says what others compute just now, while the load
    average is also of what has ended within the last minutes.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": cpu_capacity(),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in libraries},
        "load_average": load(),
        "cores_in_use": round(cpus_in_use(), 2),
    }


def load() -> float | None:
    """How many processes want to compute, on average over a minute; None where nobody says."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _version(distribution: str) -> str | None:
    if distribution == "rookery":
        from rookery import __version__

        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
