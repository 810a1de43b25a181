"""Checkpoints: plain data in torch's file format, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError, MissingExtra
from rookery.training.run_dir import whole_file

_STRINGS = "<strings>"  # the key under which an array of strings lies, as code points
_LETTER = np.dtype("<i4")
FORMAT = 2  # of what `Trainer` writes; what an older or newer one means is not known here


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: dicts, lists, numbers, strings and arrays, nested as you like.

    The file is complete before it takes its name, so that a crash leaves the one before it.

    Raises:
        StorageError: it cannot be written.
    """
    torch = _torch()

    def to_tensor(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.dtype.kind == "U":  # torch has no strings
            width = value.dtype.itemsize // _LETTER.itemsize
            letters = np.array(value, order="C").reshape(*value.shape, 1).view(_LETTER)
            return {_STRINGS: torch.from_numpy(letters.reshape(*value.shape, width))}
        # A tensor over the same memory: a replay is not copied to be written.
        return torch.from_numpy(
            value if value.flags.writeable and value.flags.c_contiguous else value.copy()
        )

    with whole_file(path) as file:
        torch.save(_map_leaves(to_tensor, {"format": FORMAT, **state}), file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote, arrays as numpy arrays. No code in it is executed.

    Raises:
        ConfigError: there is no such file, or it is none of these.
    """
    torch = _torch()
    if not path.is_file():
        raise ConfigError(f"there is no checkpoint at {path}")

    def to_array(value: Any) -> Any:
        return value.numpy() if isinstance(value, torch.Tensor) else value

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Other bytes lead torch to errors of any kind, some of which say to load them unsafely.
        raise ConfigError(
            f"{path} is no checkpoint of plain data: it was damaged, or something else wrote it"
        ) from error
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        what = "is no checkpoint of this library" if found is None else f"has format {found}"
        raise ConfigError(
            f"{path} {what}; this version reads format {FORMAT}. Use the version that wrote it, or "
            "train again"
        )
    arrays: dict[str, Any] = _map_leaves(to_array, state)
    del arrays["format"]
    return arrays


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("checkpoints need torch: pip install 'rookery[train]'") from error
    return torch


def _strings(letters: npt.NDArray[np.int32]) -> npt.NDArray[np.str_]:
    """Strings of rows of code points, ``[..., width]``, which zeros end."""
    *shape, width = letters.shape
    return np.ascontiguousarray(letters).view(f"<U{width}").reshape(shape)


def _map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, dict) and _STRINGS in value:
        return _strings(function(value[_STRINGS]))
    if isinstance(value, dict):
        return {key: _map_leaves(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map_leaves(function, item) for item in value]
    return function(value)
