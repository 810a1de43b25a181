"""Checks of what a native env returns, and conversion to arrays with one row per env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.utils.env_checker import data_equivalence

from rookery.common.env_errors import in_words
from rookery.errors import SpaceTypeError, SpaceValueError, UsageError
from rookery.shared.infos import Info
from rookery.shared.spaces import as_array, flattened, leaves

Array = npt.NDArray[Any]

_STEP = "(observations, rewards, terminated, truncated, infos)"
_RESET = "(observations, infos)"


class NativeResults:
    """Checks results of a native env.

    Args:
        space: the space of one observation; all its leaves are arrays.
        num_envs: number of envs of the native env.
    """

    def __init__(self, space: Space[Any], num_envs: int) -> None:
        self._space, self._num_envs = space, num_envs
        self._paths = [leaf.path for leaf in leaves(space, "observation")]

    def of_step(self, result: Any) -> Sequence[Any]:
        """Check that ``step`` returned five values, and return them."""
        if not isinstance(result, (tuple, list)) or len(result) != 5:
            raise TypeError(f"step must return {_STEP}, but returned {in_words(result)}")
        return result

    def of_reset(self, result: Any) -> Sequence[Any]:
        """Check that ``reset`` returned two values, and return them."""
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise TypeError(f"reset must return {_RESET}, but returned {in_words(result)}")
        return result

    def rewards(self, values: Any) -> Array:
        """Return the rewards as an array of numbers ``[n]``."""
        return self._column(values, "rewards", "biuf", "a number")

    def flags(self, values: Any, name: str) -> Array:
        """Return flags as a bool array ``[n]``."""
        return self._column(values, name, "b", "a bool")

    def observation_leaves(self, obs: Any, columns: Sequence[Array]) -> list[Array]:
        """Return the leaves of a batch of observations, each ``[n, *shape]``.

        Args:
            obs: observations, batched like the native env's ``observation_space``.
            columns: the arrays to which the leaves will be written, ``[any, *shape]``.
        """
        parts = []
        flat = flattened(self._space, obs, "observation")
        for path, part, column in zip(self._paths, flat, columns, strict=True):
            array, expected = as_array(part, path), (self._num_envs, *column.shape[1:])
            if array.shape != expected:
                raise SpaceValueError(
                    f"{path} has shape {array.shape}, expected {expected}: one for each env"
                )
            if not np.can_cast(array.dtype, column.dtype, "same_kind"):
                raise SpaceTypeError(
                    f"{path} has dtype {array.dtype}, but its space has dtype {column.dtype}"
                )
            parts.append(array)
        return parts

    def _column(self, values: Any, name: str, kinds: str, wanted: str) -> Array:
        array = as_array(values, name)
        if array.shape != (self._num_envs,) or array.dtype.kind not in kinds:
            raise TypeError(
                f"{name} must be an array with {wanted} for each of {self._num_envs} envs, but an "
                f"array of shape {array.shape} and dtype {array.dtype} came"
            )
        return array


def check_spared(mask: Array, before: Array, after: Array, ids: range) -> None:
    """Raise TypeError if a reset has changed envs outside its mask.

    Many native envs do not support masks.

    Args:
        mask: bool ``[n]``, the envs that were to be reset.
        before: a leaf of the observations before the reset, ``[n, *shape]``.
        after: the same leaf after the reset, ``[n, *shape]``.
        ids: the ids of the envs.
    """
    after = after.astype(before.dtype, copy=False)
    changed = [i for i in np.flatnonzero(~mask) if before[i].tobytes() != after[i].tobytes()]
    if changed:
        told = (np.flatnonzero(mask) + ids.start).tolist()
        raise TypeError(
            f"options['reset_mask'] told a reset to reset envs {told} alone, but the "
            f"observations of envs {[ids[i] for i in changed]} changed as well; as it seems, this "
            "native env knows no masks. Reset all envs together"
        )


def common_options(options: Sequence[dict[str, Any] | None], ids: range) -> dict[str, Any] | None:
    """Return the reset options, which must be the same for all envs.

    Raises:
        UsageError: the options differ.
    """
    first = options[0]
    for own in options:
        if own is not first and not data_equivalence(own, first):
            raise UsageError(
                f"reset of envs {ids[0]}-{ids[-1]}: a native env takes one dict of options for all "
                "its envs, not one for each"
            )
    return first


def require_final(info: Info) -> None:
    """Raise TypeError if an info has no final observations."""
    if "final_obs" not in info:
        raise TypeError(
            "episodes have ended in the same-step mode, but info has no 'final_obs'; a native env "
            "that resets within the step must return the last observations there"
        )
