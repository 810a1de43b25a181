"""Checkpoints: plain data in torch's file format, written atomically."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError, MissingExtra
from rookery.run.checkpoint.run_dir import whole_file

_STRINGS = "<strings>"  # key of an array of strings, stored as code points
_TENSOR = "<tensor>"  # key of a torch tensor; tensors without it were numpy arrays
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_LETTER = np.dtype("<i4")
FORMAT = 2  # format version that `Trainer` writes; other versions cannot be read


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``, nested dicts and lists of numbers, strings, arrays and tensors.

    The file is renamed once it is complete, so that a crash leaves the previous file.

    Raises:
        ConfigError: the state contains another kind of object.
        StorageError: the file cannot be written.
    """
    plain = as_plain(state)
    with whole_file(path) as file:
        _torch().save({"format": FORMAT, **plain}, file)


def as_plain(state: dict[str, Any], of: str = "the state") -> dict[str, Any]:
    """Convert a state to types that torch can load without executing code.

    Args:
        state: nested dicts and lists of numbers, strings, arrays and tensors.
        of: what error messages call the state.

    Raises:
        ConfigError: the state contains another kind of object.
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
        if value.dtype.kind == "U":  # torch has no string tensors
            width = value.dtype.itemsize // _LETTER.itemsize
            letters = np.array(value, order="C").reshape(*value.shape, 1).view(_LETTER)
            return {_STRINGS: torch.from_numpy(letters.reshape(*value.shape, width))}
        try:
            # The tensor shares the array's memory, so that a replay is not copied.
            return torch.from_numpy(
                value if value.flags.writeable and value.flags.c_contiguous else value.copy()
            )
        except (TypeError, ValueError):
            raise _not_plain(of, place, f"an array of {value.dtype}") from None

    plain: dict[str, Any] = _map_leaves(to_tensor, state)
    return plain


def _not_plain(of: str, place: str, found: str) -> ConfigError:
    return ConfigError(
        f"{of} holds {found} at {place}, but a checkpoint holds plain data only: dicts, lists, "
        "tuples, numbers, strings, numpy arrays and torch tensors"
    )


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a file of `save_checkpoint`, with all tensors on the CPU.

    Loading executes no code from the file.

    Raises:
        ConfigError: the file does not exist or is not a checkpoint of this version.
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
        # For other files torch raises errors of any kind; some suggest to load them unsafely.
        raise ConfigError(
            f"{path} is not a checkpoint of plain data: it is damaged, or another program wrote it"
        ) from error
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        what = "is not a checkpoint of this library" if found is None else f"has format {found}"
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
    """Convert zero-terminated rows of code points ``[..., width]`` to strings."""
    *shape, width = letters.shape
    return np.ascontiguousarray(letters).view(f"<U{width}").reshape(shape)


def _map_leaves(function: Callable[[Any, str], Any], value: Any, place: str = "") -> Any:
    """Replace every leaf by ``function(leaf, place)``."""
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


def space_to_data(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describe a space as dicts, lists, numbers, strings and arrays.

    A space of an unsupported class is described by its class name alone; see `space_from_data`.
    """
    match space:
        case spaces.Box():
            return {"kind": "Box", "low": np.array(space.low), "high": np.array(space.high)}
        case spaces.Discrete():
            return {
                "kind": "Discrete",
                "n": int(space.n),
                "start": int(space.start),
                "dtype": str(space.dtype),
            }
        case spaces.MultiDiscrete():
            return {
                "kind": "MultiDiscrete",
                "nvec": np.array(space.nvec, np.int64),
                "start": np.array(space.start, np.int64),
                "dtype": str(space.dtype),
            }
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": np.array(space.n).tolist()}
        case spaces.Text():
            return {
                "kind": "Text",
                "min_length": int(space.min_length),
                "max_length": int(space.max_length),
                "charset": "".join(space.character_list),
            }
        case spaces.Tuple():
            return {"kind": "Tuple", "parts": [space_to_data(part) for part in space.spaces]}
        case spaces.Dict():
            parts = {key: space_to_data(part) for key, part in space.spaces.items()}
            return {"kind": "Dict", "keys": list(parts), "parts": list(parts.values())}
    return {"kind": type(space).__name__}


def space_form(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describe the properties of a space that shape a network: all but the bounds of boxes."""
    match space:
        case spaces.Box():
            return {"kind": "Box", "shape": space.shape, "dtype": str(space.dtype)}
        case spaces.Tuple():
            return {"kind": "Tuple", "parts": [space_form(part) for part in space.spaces]}
        case spaces.Dict():
            return {"kind": "Dict", "parts": {k: space_form(v) for k, v in space.spaces.items()}}
    data = space_to_data(space)
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in data.items()}


def space_from_data(data: dict[str, Any]) -> spaces.Space[Any] | None:
    """Undo `space_to_data`; return None if a part of the space has an unsupported class."""
    match data["kind"]:
        case "Box":
            low, high = np.asarray(data["low"]), np.asarray(data["high"])
            return spaces.Box(low, high, low.shape, low.dtype.type)
        case "Discrete":
            return spaces.Discrete(
                data["n"], start=data["start"], dtype=np.dtype(data["dtype"]).type
            )
        case "MultiDiscrete":
            dtype = np.dtype(data["dtype"]).type
            return spaces.MultiDiscrete(data["nvec"], dtype, start=data["start"])
        case "MultiBinary":
            n = data["n"]
            return spaces.MultiBinary(n if isinstance(n, int) else tuple(n))
        case "Text":
            lengths = {key: data[key] for key in ("min_length", "max_length")}
            return spaces.Text(charset=data["charset"], **lengths)
        case "Tuple" | "Dict":
            parts = [space_from_data(part) for part in data["parts"]]
            if any(part is None for part in parts):
                return None
            if data["kind"] == "Tuple":
                return spaces.Tuple(parts)  # type: ignore[arg-type]
            return spaces.Dict(list(zip(data["keys"], parts, strict=True)))  # type: ignore[arg-type]
    return None
