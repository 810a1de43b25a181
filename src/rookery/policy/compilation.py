"""torch.compile, where there is a compiler for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from rookery.errors import ConfigError

_COMPILERS = ("g++", "clang++", "c++", "cl")

F = TypeVar("F", bound=Callable[..., Any])


def require_compiler() -> None:
    """Refuse to go on without a C++ compiler.

    Raises:
        ConfigError: none is found in CXX or on the PATH.
    """
    candidates = (os.environ["CXX"],) if os.environ.get("CXX") else _COMPILERS
    if not any(map(shutil.which, candidates)):
        raise ConfigError(
            f"compile needs a C++ compiler, and none of {', '.join(candidates)} is on the PATH; "
            "install one, name it in the environment variable CXX, or leave compile out"
        )


def compile_network(function: F) -> F:
    """Translate a function of tensors at its first call, which takes a minute or so.

    Raises:
        ConfigError: there is no compiler, or torch cannot compile under this Python.
    """
    require_compiler()
    try:
        return cast(F, torch.compile(function))
    except RuntimeError as error:
        raise ConfigError(f"compile is not possible here: {error}; leave it out") from error
