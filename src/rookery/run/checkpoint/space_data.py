"""Spaces as plain data, to store a policy's spaces in a checkpoint."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np


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
