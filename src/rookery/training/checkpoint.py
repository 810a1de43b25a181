"""Checkpoints: plain data in torch's file format, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from rookery.errors import ConfigError, MissingExtra


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: dicts, lists, numbers, strings and arrays, nested as you like.

    The file is complete before it takes its name, so that a crash leaves the one before it.
    """
    torch = _torch()
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        torch.save(_convert(state, np.ndarray, lambda array: torch.from_numpy(array.copy())), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, arrays as numpy arrays. No code in it is executed."""
    torch = _torch()
    if not path.exists():
        raise ConfigError(f"there is no checkpoint at {path}")
    state = torch.load(path, map_location="cpu", weights_only=True)
    converted: dict[str, Any] = _convert(state, torch.Tensor, lambda tensor: tensor.numpy())
    return converted


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("checkpoints need torch: pip install 'rookery[train]'") from error
    return torch


def _convert(value: Any, kind: type, function: Any) -> Any:
    if isinstance(value, dict):
        return {key: _convert(item, kind, function) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert(item, kind, function) for item in value]
    return (
        function(np.asarray(value) if kind is np.ndarray else value)
        if isinstance(value, kind)
        else value
    )
