"""Results of a native env: checks, conversion to one row per env, counts and times.

Infos come in Gymnasium's vector form. Every key has an array with a value for each env, and a mask
under the key with a leading underscore that marks the envs that have the key. Native envs may omit
masks, stack final observations, and include values that belong to no env. Numbers that every env
has stay in columns. All other values are split by env.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.utils.env_checker import data_equivalence

from rookery.common.env_errors import in_words
from rookery.errors import SpaceTypeError, SpaceValueError, UsageError
from rookery.shared.infos import Info, element
from rookery.shared.spaces import as_array, batched, flattened, leaves
from rookery.shared.stopwatch import (
    ALWAYS_FROM_S,
    EPISODES,
    EXTRA,
    RESET_NS,
    RESETS,
    SPARSELY,
    STEP_NS,
    WAIT_NS,
    EnvCounters,
    bucket_of,
)

Array = npt.NDArray[Any]

_STEP = "(observations, rewards, terminated, truncated, infos)"
_RESET = "(observations, infos)"
_FINAL_OBS, _FINAL_INFO = "final_obs", "final_info"


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
        asked = (np.flatnonzero(mask) + ids.start).tolist()
        raise TypeError(
            f"options['reset_mask'] names envs {asked} only, but the observations of envs "
            f"{[ids[i] for i in changed]} changed as well. This native env seems to ignore masks; "
            "reset all envs together"
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


class NativeInfos:
    """Splits the infos of a native env into columns and rows.

    Args:
        space: the space of one observation.
        num_envs: number of envs of the native env.
    """

    def __init__(self, space: Space[Any], num_envs: int) -> None:
        self._space = space
        self._num_envs = num_envs

    def columns(self, info: Any) -> tuple[dict[str, Array], Info]:
        """Return the numbers that every env has, as arrays ``[n, *shape]``, and the rest.

        Raises:
            TypeError: the info is not a dict.
        """
        if not isinstance(info, dict):
            raise TypeError(
                f"info must be a dict, but is a {type(info).__name__}: {in_words(info)}"
            )
        columns: dict[str, Array] = {}
        rest: Info = {}
        for key, value in info.items():
            if _is_mask(info, key):
                continue
            mask = self._mask(info, key)
            is_numbers = type(value) is np.ndarray and value.dtype.kind in "biuf"
            if is_numbers and key != _FINAL_OBS and (mask is None or mask.all()):
                columns[key] = self._checked(value, key)
            else:
                rest[key] = value
                if mask is not None:
                    rest[f"_{key}"] = mask
        return columns, rest

    def keys(self, info: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the keys of an info without the keys of masks."""
        return tuple(key for key in info if not _is_mask(info, key))

    def row(self, info: Mapping[str, Any], place: int, ended: Array) -> Info:
        """Return the info of one env.

        Args:
            info: the info in vector form.
            place: position of the env.
            ended: bool ``[n]``, the envs with a finished episode. It replaces a missing mask of
                final observations and infos.
        """
        own: Info = {}
        for key, value in info.items():
            if _is_mask(info, key):
                continue
            mask = self._mask(info, key)
            if mask is None and key in (_FINAL_OBS, _FINAL_INFO):
                mask = ended
            if mask is None or mask[place]:
                own[key] = self._value(key, value, place, ended)
        return own

    def observation(self, obs: Any, place: int) -> Any:
        """Return a copy of the observation of one env."""
        parts = flattened(self._space, obs, "observation")
        return batched(
            self._space, iter([element(as_array(p, "observation")[place]) for p in parts])
        )

    def _value(self, key: str, value: Any, place: int, ended: Array) -> Any:
        if isinstance(value, dict) and key != _FINAL_OBS:
            return self.row(value, place, ended)
        if key == _FINAL_OBS and not (isinstance(value, np.ndarray) and value.dtype == object):
            return self.observation(value, place)
        if isinstance(value, (list, tuple)):
            if len(value) != self._num_envs:
                raise self._mismatch(key, f"a {type(value).__name__} of {len(value)}")
            return value[place]
        if not hasattr(value, "__array__") or not np.ndim(value):
            return value  # one value for all envs
        return element(self._checked(np.asarray(value), key)[place])

    def _mask(self, info: Mapping[str, Any], key: Any) -> Array | None:
        mask = info.get(f"_{key}")
        if mask is None:
            return None
        array = as_array(mask, f"info['_{key}']")
        if array.shape != (self._num_envs,):
            raise self._mismatch(f"_{key}", f"an array of shape {array.shape}")
        return array.astype(np.bool_, copy=False)

    def _checked(self, value: Array, key: str) -> Array:
        if len(value.shape) == 0 or len(value) != self._num_envs:
            raise self._mismatch(key, f"an array of shape {value.shape}")
        return value

    def _mismatch(self, key: str, came: str) -> TypeError:
        return TypeError(
            f"info[{key!r}] must have a value for each of {self._num_envs} envs, but {came} came"
        )


def _is_mask(info: Mapping[str, Any], key: Any) -> bool:
    return type(key) is str and key.startswith("_") and key[1:] in info


class NativeWatch:
    """Counts and times of one native batch, in the columns of `rookery.shared.stopwatch`.

    All envs step in one call, so their individual times are unknown. The time of the call divided
    by the number of envs is recorded for each env, and no env is reported as the slowest.

    Args:
        watched: the words of all envs.
        ids: the batch's envs.
    """

    def __init__(self, watched: EnvCounters, ids: range) -> None:
        own = slice(ids.start, ids.stop)
        self._words, self._steps = watched.words[own], watched.steps[own]
        self._resets = watched.resets[own]
        self._count = len(ids)
        self._waited_before = int(self._words[0, WAIT_NS])
        self._began: float | None = None
        self._busy_before = 0.0
        self._until_timed = 1

    def begin(self, started: float, busy_s: float) -> None:
        """Record how long the batch was idle; see `Stopwatch.begin`."""
        if self._began is None:
            self._began, self._busy_before = started, busy_s
        waited_s = started - self._began - (busy_s - self._busy_before)
        self._words[0, WAIT_NS] = self._waited_before + max(int(waited_s * 1e9), 0)

    def note_step(self, took_s: float) -> None:
        """Record a step of all envs."""
        self._until_timed -= 1
        if self._until_timed > 0:
            return
        each_ns = int(took_s * 1e9 / self._count)
        self._words[:, STEP_NS] += each_ns
        self._steps[:, bucket_of(each_ns)] += 1
        self._until_timed = 1 if took_s >= ALWAYS_FROM_S * self._count else SPARSELY

    def note_reset(self, places: Sequence[int], took_s: float) -> None:
        """Record a reset of some envs."""
        chosen = list(places)
        each_ns = int(took_s * 1e9 / max(len(chosen), 1))
        self._words[chosen, RESET_NS] += each_ns
        self._resets[chosen, bucket_of(each_ns)] += 1

    def note_reset_in_place_of_step(self) -> None:
        """Record that a step order resets all envs."""
        self._words[:, EXTRA] -= 1

    def note_ends(self, ended: Array, were_reset: bool) -> None:
        """Record the envs with finished episodes, and if the step has reset them."""
        if b"\1" in ended.tobytes():  # a fifth of what any() takes
            self._words[ended, EPISODES] += 1
            self._words[ended, RESETS] += were_reset

    def note_resets_instead(self, reset: Array) -> None:
        """Record the envs that a step order has reset."""
        self._words[reset, EXTRA] -= 1
        self._words[reset, RESETS] += 1
