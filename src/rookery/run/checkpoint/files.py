"""Checkpoints: plain data in torch's file format, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError, MissingExtra
from rookery.run.checkpoint.run_dir import whole_file

_STRINGS = "<strings>"  # the key under which an array of strings lies, as code points
_TENSOR = "<tensor>"  # the key under which one of torch's tensors lies; others were numpy's arrays
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LETTER = np.dtype("<i4")
FORMAT = 2  # of what `Trainer` writes; what an older or newer one means is not known here


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``: dicts, lists, numbers, strings, arrays and tensors, nested as you like.

    The file is complete before it takes its name, so that a crash leaves the one before it.

    Raises:
        ConfigError: the state holds something else.
        StorageError: it cannot be written.
    """
    plain = as_plain(state)
    with whole_file(path) as file:
        _torch().save({"format": FORMAT, **plain}, file)


def as_plain(state: dict[str, Any], of: str = "the state") -> dict[str, Any]:
    """Turn a state into what torch writes and reads without code.

    Args:
        state: as for `save_checkpoint`.
        of: what it is, for messages.

    Raises:
        ConfigError: it holds something that is no plain data.
    """
    torch = _torch()

    def to_tensor(value: Any, place: str) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, torch.Tensor):
            return {_TENSOR: value.detach()}
        if not isinstance(value, np.ndarray):
            raise _not_plain(of, place, f"a {type(value).__name__}")
        if value.dtype.kind == "U":  # torch has no strings
            width = value.dtype.itemsize // _LETTER.itemsize
            letters = np.array(value, order="C").reshape(*value.shape, 1).view(_LETTER)
            return {_STRINGS: torch.from_numpy(letters.reshape(*value.shape, width))}
        try:
            # A tensor over the same memory: a replay is not copied to be written.
            return torch.from_numpy(
                value if value.flags.writeable and value.flags.c_contiguous else value.copy()
            )
        except (TypeError, ValueError):
            raise _not_plain(of, place, f"an array of {value.dtype}") from None

    plain: dict[str, Any] = _map_leaves(to_tensor, state)
    return plain


def _not_plain(of: str, place: str, found: str) -> ConfigError:
    return ConfigError(
        f"{of} holds {found} at {place}, and a checkpoint holds plain data only: dicts, lists, "
        "tuples, numbers, strings, numpy's arrays and torch's tensors"
    )


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `save_checkpoint` wrote: arrays as arrays, tensors as tensors, on the CPU.

    No code in it is executed.

    Raises:
        ConfigError: there is no such file, or it is none of these.
    """
    torch = _torch()
    if not path.is_file():
        raise ConfigError(f"there is no checkpoint at {path}")

    def to_array(value: Any, _: str) -> Any:
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


def _map_leaves(function: Callable[[Any, str], Any], value: Any, place: str = "") -> Any:
    """Put in the place of every leaf what ``function(leaf, place)`` gives."""
    if isinstance(value, dict) and value.keys() == {_STRINGS}:
        return _strings(function(value[_STRINGS], place))
    if isinstance(value, dict) and value.keys() == {_TENSOR}:
        return value[_TENSOR]
    if isinstance(value, dict):
        return {k: _map_leaves(function, item, f"{place}[{k!r}]") for k, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_map_leaves(function, item, f"{place}[{k}]") for k, item in enumerate(value)]
        return tuple(items) if type(value) is tuple else items
    return function(value, place)
