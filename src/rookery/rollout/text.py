"""Text in observations as arrays, which rollouts can hold."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.common.trees import Tree
from rookery.errors import SpaceError
from rookery.shared.spaces import FreeLeaf, Leaf, leaves


def text_dtype(space: spaces.Text) -> np.dtype[Any]:
    """The dtype of arrays that hold any string of a Text space."""
    return np.dtype(f"<U{max(space.max_length, 1)}")


def holds_text(space: spaces.Space[Any]) -> bool:
    """Whether a part of the space is a Text."""
    return any(
        isinstance(leaf, FreeLeaf) and isinstance(leaf.space, spaces.Text)
        for leaf in leaves(space, "observation")
    )


def array_leaves(space: spaces.Space[Any]) -> list[Leaf]:
    """The parts of an observation as rollouts hold them, a Text as one string.

    Raises:
        SpaceError: a part has no fixed array form.
    """
    found = []
    for leaf in leaves(space, "observation"):
        if isinstance(leaf, FreeLeaf):
            if not isinstance(leaf.space, spaces.Text):
                raise SpaceError(
                    f"{leaf.path}, a {type(leaf.space).__name__}, has no fixed array form, and "
                    "rollouts are arrays; wrap the env so that it becomes one "
                    "(gymnasium.wrappers.TransformObservation), or leave it out"
                )
            leaf = Leaf(leaf.path, (), text_dtype(leaf.space))
        found.append(leaf)
    return found


def text_as_arrays(space: spaces.Space[Any], obs: Tree) -> Tree:
    """Turn text in one observation, or in a batch, into arrays of strings; the rest stays.

    Args:
        space: of one env.
        obs: where the space is a Text, a string, or a sequence of N strings.
    """
    match space:
        case spaces.Dict():
            return {key: text_as_arrays(part, obs[key]) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(map(text_as_arrays, space.spaces, obs))
        case spaces.Text():
            return np.array(obs, text_dtype(space))
        case _:
            return obs
