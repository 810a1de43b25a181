"""Checkpoints: plain data in torch's file format, written whole or not at all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rookery.errors import ConfigError, MissingExtra


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the name ``path`` once it is complete and on the disk."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: dicts, lists, numbers, strings and arrays, nested as you like.

    The file is complete before it takes its name, so that a crash leaves the one before it.
    """
    torch = _torch()

    def to_tensor(value: Any) -> Any:
        return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value

    with whole_file(path) as file:
        torch.save(_map_leaves(to_tensor, state), file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, arrays as numpy arrays. No code in it is executed."""
    torch = _torch()
    if not path.exists():
        raise ConfigError(f"there is no checkpoint at {path}")

    def to_array(value: Any) -> Any:
        return value.numpy() if isinstance(value, torch.Tensor) else value

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{path} is no checkpoint of plain data: {reason}") from error
    arrays: dict[str, Any] = _map_leaves(to_array, state)
    return arrays


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("checkpoints need torch: pip install 'rookery[train]'") from error
    return torch


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_leaves(function, item) for item in value]
    return function(value)
