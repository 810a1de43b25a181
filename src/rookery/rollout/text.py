"""Conversion of text in observations to arrays, which rollouts can hold."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.common.trees import Tree
from rookery.errors import SpaceError
from rookery.shared.spaces import FreeLeaf, Leaf, leaves


def text_dtype(space: spaces.Text) -> np.dtype[Any]:
    """Return the dtype of arrays that hold any string of a Text space."""
    return np.dtype(f"<U{max(space.max_length, 1)}")


def holds_text(space: spaces.Space[Any]) -> bool:
    """Return True if a part of the space is a Text."""
    return any(
        isinstance(leaf, FreeLeaf) and isinstance(leaf.space, spaces.Text)
        for leaf in leaves(space, "observation")
    )


def array_leaves(space: spaces.Space[Any]) -> list[Leaf]:
    """Return the leaves of an observation as rollouts hold them, a Text as one string.

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
    """Convert text in an observation or a batch to arrays of strings; keep all other parts.

    Args:
        space: observation space of one env.
        obs: an observation or a batch; a Text part is a string or a sequence of N strings.
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
