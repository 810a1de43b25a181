"""Infos of a native env: from Gymnasium's vector form to columns of all envs, and what is left.

In the vector form every key has an array with a value for each env, and beside it, under the key
with an underscore, a mask of the envs that have it. Native envs leave the masks out, stack final
observations, and put in what belongs to no env. What every env has, as numbers, stays in columns;
all else is taken apart, env by env.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space

from rookery.common.env_errors import in_words
from rookery.shared.infos import Info, element
from rookery.shared.spaces import as_array, batched, flattened

Array = npt.NDArray[Any]

_FINAL_OBS, _FINAL_INFO = "final_obs", "final_info"


class NativeInfos:
    """Takes infos of a native env apart.

    Args:
        space: of one observation.
        num_envs: how many envs it has.
    """

    def __init__(self, space: Space[Any], num_envs: int) -> None:
        self._space = space
        self._num_envs = num_envs

    def columns(self, info: Any) -> tuple[dict[str, Array], Info]:
        """What every env has, as arrays ``[n, *shape]`` of numbers, and the rest of an info.

        Raises:
            TypeError: when it is no dict.
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
        """The keys of an info, without those of masks."""
        return tuple(key for key in info if not _is_mask(info, key))

    def row(self, info: Mapping[str, Any], place: int, ended: Array) -> Info:
        """What one env has of an info.

        Args:
            info: in vector form.
            place: which env.
            ended: bool ``[n]``, whose episode has ended; what is final is theirs, if no mask says
                so.
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
        """A copy of the observation of one env."""
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
            return value  # of all envs together: each of them has it
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
