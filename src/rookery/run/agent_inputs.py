"""Conversion of observations from users of an agent to the batches that a policy accepts.

Values that a cast to the space's dtype would change raise an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces

from rookery.common.env_errors import in_words
from rookery.common.trees import Tree, tree_map
from rookery.errors import SpaceError
from rookery.rollout.text import text_as_arrays

_NUMBERS = "biuf"  # dtype kinds


def as_batch(space: Space[Any], obs: Any) -> tuple[Tree, bool]:
    """Convert a single observation or a batch of observations to a batch.

    Args:
        space: space of a single observation.
        obs: a single observation or a batch.

    Returns:
        The batch, and True if ``obs`` was a single observation.

    Raises:
        SpaceError: ``obs`` has another form, or holds numbers that are outside the space.
    """
    try:
        if _has_form(space, obs, is_batch=False):
            return tree_map(lambda leaf: np.asarray(leaf)[None], _as_tree(space, obs)), True
        if not _has_form(space, obs, is_batch=True):
            raise SpaceError(
                f"the observation {_shapes(obs)} is neither one of {space}, nor a batch of such"
            )
        batch = _as_tree(space, obs)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise SpaceError(
            f"the observation {in_words(obs)} does not fit {space}: {error}"
        ) from error
    _require_one_length(obs, batch)
    return batch, False


def _require_one_length(obs: Any, batch: Tree) -> None:
    """Raise if the parts have different lengths or the batch is empty."""
    lengths: set[int] = set()
    tree_map(lambda leaf: lengths.add(len(leaf)), batch)
    if len(lengths) > 1:
        raise SpaceError(
            f"the parts of a batch must have the same number of rows, one for each env; those of "
            f"this observation are {_shapes(obs)}"
        )
    if lengths == {0}:
        raise SpaceError("a batch must have at least one observation; this one is empty")


def _has_form(space: Space[Any], obs: Any, is_batch: bool) -> bool:
    """Return True if ``obs`` has the form of one observation, or of a batch of them."""
    match space:
        case spaces.Dict():
            return isinstance(obs, dict) and all(
                key in obs and _has_form(part, obs[key], is_batch)
                for key, part in space.spaces.items()
            )
        case spaces.Tuple():
            return (
                isinstance(obs, tuple)
                and len(obs) == len(space.spaces)
                and all(
                    _has_form(part, value, is_batch)
                    for part, value in zip(space.spaces, obs, strict=True)
                )
            )
        case spaces.Text():
            return _is_text(obs) if not is_batch else np.ndim(obs) == 1 and all(map(_is_text, obs))
    shape = np.shape(obs)
    if is_batch:
        return bool(len(shape) > 0 and shape[1:] == space.shape)
    return bool(shape == space.shape)


def _as_tree(space: Space[Any], obs: Any) -> Tree:
    match space:
        case spaces.Dict():
            return {key: _as_tree(part, obs[key]) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(map(_as_tree, space.spaces, obs))
        case spaces.Discrete():
            return _whole(space, obs, space.start, space.start + space.n)
        case spaces.MultiDiscrete():
            return _whole(space, obs, space.start, space.start + space.nvec)
        case spaces.MultiBinary():
            return _whole(space, obs, 0, 2)
        case spaces.Text():
            return text_as_arrays(space, obs)
    dtype = np.dtype(space.dtype)
    if dtype.kind == "b":
        return _whole(space, obs, 0, 2)
    if dtype.kind in "iu":
        kind = np.iinfo(dtype)
        return _whole(space, obs, kind.min, kind.max + 1)
    return _finite(space, obs)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)  # includes numpy strings


def _whole(space: Space[Any], obs: Any, low: Any, end: Any) -> npt.NDArray[Any]:
    """Convert integers in ``[low, end)`` to an array of the space's dtype.

    Raises:
        SpaceError: a number is not an integer or outside this range.
    """
    given = _numbers(space, obs)
    with np.errstate(invalid="ignore"):
        numbers = given.astype(space.dtype)
    if ((numbers != given) | (given < low) | (given >= end)).any():
        raise SpaceError(f"the observation {in_words(obs)} holds a number that is not in {space}")
    return numbers


def _finite(space: Space[Any], obs: Any) -> npt.NDArray[Any]:
    """Convert numbers to an array of the space's dtype.

    Raises:
        SpaceError: a number is not finite in this dtype.
    """
    with np.errstate(over="ignore"):
        numbers = _numbers(space, obs).astype(space.dtype)
    if not np.isfinite(numbers).all():
        raise SpaceError(
            f"the observation {in_words(obs)} holds a number that is not finite (NaN, infinite, or "
            f"too large for {space.dtype})"
        )
    return numbers


def _numbers(space: Space[Any], obs: Any) -> npt.NDArray[Any]:
    given = np.asarray(obs)
    if given.dtype.kind not in _NUMBERS:
        raise SpaceError(f"the observation {in_words(obs)} is not of numbers, as {space} is")
    return given


def _shapes(obs: Any) -> str:
    if isinstance(obs, dict):
        return "{" + ", ".join(f"{key}: {_shapes(part)}" for key, part in obs.items()) + "}"
    if isinstance(obs, tuple):
        return "(" + ", ".join(map(_shapes, obs)) + ")"
    return f"of shape {np.shape(obs)}"
