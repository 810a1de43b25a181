"""Checks that this machine has the device and the compiler that settings require."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from rookery.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import torch

_COMPILERS = ("g++", "clang++", "c++", "cl")


def require_machine(device: str, compiled: bool) -> None:
    """Reject a device or a compilation that this machine cannot do; import torch only if needed.

    Raises:
        ConfigError: the device or a compiler is missing.
        MissingExtra: torch is needed and not installed.
    """
    if device != "cpu":
        torch_device(device)
    if compiled:
        require_compiler()


def torch_device(name: str) -> torch.device:
    """Return the torch device of this name.

    Raises:
        ConfigError: torch does not know the name, or this machine lacks the device.
        MissingExtra: torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("devices need torch: pip install 'rookery[train]'") from error
    device = torch.device(name)
    mps = int(torch.backends.mps.is_available())
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": mps}
    available = counts.get(device.type, 0)
    if (device.index or 0) >= available:
        raise ConfigError(
            f"device is {name!r}, but torch {torch.__version__} sees {available} devices of type "
            f"{device.type!r} here; leave device at 'cpu', or install a torch built for yours"
        )
    return device


def require_compiler() -> None:
    """Raise if a C++ compiler is missing.

    Raises:
        ConfigError: neither CXX nor the PATH has a compiler.
    """
    candidates = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    if not any(map(shutil.which, candidates)):
        raise ConfigError(
            f"compile needs a C++ compiler, and none of {', '.join(candidates)} is on the PATH; "
            "install one, name it in the environment variable CXX, or use compile=False"
        )
