"""Infos of a native env: from Gymnasium's vector form to columns, and a rest per env.

In the vector form every key has an array with a value for each env, and a mask under the key with a
leading underscore that marks the envs that have the key. Native envs may omit masks, stack final
observations, and include values that belong to no env. Numbers that every env has stay in columns.
All other values are split by env.
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
            ended: bool ``[n]``, the envs whose episode has ended. It replaces a missing mask of
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
