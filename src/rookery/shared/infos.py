"""Infos: the forms they have as columns of numbers, and how Gymnasium's vector envs merge them.

Most envs return the same few numbers with every step. The first such info makes an
:class:`InfoForm`; from then on the numbers lie in fixed places of a row, and the infos of all envs
become one column for each key. What fits no form (strings, None, nested dicts, a changed shape) is
loose and travels beside it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rookery.shared.freeform import array_at

Info = dict[str, Any]

_WORD_BYTES = 8
# Letters of the struct module, whose sizes do not depend on the platform as numpy's letters do.
_CODES = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I"}
_CODES |= {"u8": "Q", "f2": "e", "f4": "f", "f8": "d"}
_OBJECT_KEYS = ("final_obs",)  # Gymnasium never makes a column of these
_MOST_BYTES = 2**22  # of a form; larger infos are rarer than they are worth


@dataclass(frozen=True)
class InfoEntry:
    """A key of an info and where its value lies in a row.

    Attributes:
        key: as in the info.
        kind: type of the value, a number's or ``numpy.ndarray``.
        dtype: of the column that Gymnasium makes of it.
        shape: of one value.
        offset: in bytes, a multiple of 8.
    """

    key: str
    kind: type
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """Bytes of one value, without what fills the last word."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


@dataclass(frozen=True)
class InfoForm:
    """The numbers that an info holds, in the order of its keys.

    Attributes:
        entries: where each of them lies.
        order: all keys of the info, in their order, those without an entry too.
    """

    entries: tuple[InfoEntry, ...]
    order: tuple[Any, ...] = ()  # texts, where there are entries

    def __reduce__(self) -> Any:
        return InfoForm, (self.entries, self.order)  # without what was worked out from them

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> InfoForm:
        """The form of an info; what is no number, and no array of numbers, is left out.

        A key that begins with an underscore may be the mask of another, of any env. What becomes
        of the two depends on the order in which they are merged, so such an info has no form. Nor
        has one with a key that is no text: in another process it may be told otherwise.
        """
        entries: list[InfoEntry] = []
        offset = 0
        if any(type(key) is not str or key.startswith("_") for key in info):
            return cls((), tuple(info))
        for key, value in info.items():
            if key in _OBJECT_KEYS:
                continue
            column = _column_of(value)
            if column is None:
                continue
            entry = InfoEntry(key, type(value), *column, offset)
            if offset + entry.size_bytes > _MOST_BYTES:
                continue
            entries.append(entry)
            offset += _padded(entry.size_bytes)
        return cls(tuple(entries), tuple(info))

    @cached_property
    def id(self) -> int:
        """Tells forms apart, in every process alike; never 0."""
        entries = [(e.key, e.kind, e.dtype, e.shape) for e in self.entries]
        described = repr((entries, self.order))
        digest = hashlib.blake2b(described.encode(), digest_size=7).digest()
        return int.from_bytes(digest, "little") + 1

    @cached_property
    def size_bytes(self) -> int:
        """Of a row, a multiple of 8."""
        return max((e.offset + _padded(e.size_bytes) for e in self.entries), default=0)

    @cached_property
    def is_whole(self) -> bool:
        """Whether every key of the info has an entry."""
        return len(self.entries) == len(self.order)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Of the entries."""
        return tuple(entry.key for entry in self.entries)

    @cached_property
    def _scalars(self) -> tuple[tuple[str, ...], struct.Struct]:
        """Keys of the numbers, and how they lie between the arrays."""
        keys, codes, at = [], ["="], 0
        for entry in self.entries:
            if entry.kind is not np.ndarray:
                codes.append(f"{entry.offset - at}x{_CODES[_name(entry.dtype)]}")
                at = entry.offset + entry.dtype.itemsize
                keys.append(entry.key)
        return tuple(keys), struct.Struct("".join(codes))

    @cached_property
    def _arrays(self) -> tuple[InfoEntry, ...]:
        return tuple(entry for entry in self.entries if entry.kind is np.ndarray)

    def write(self, info: Mapping[str, Any], memory: Any, at: int) -> bool:
        """Write an info with the keys and types of this form into a row.

        Args:
            info: its other keys are ignored.
            memory: a memoryview of bytes.
            at: where in it the row begins.

        Returns:
            False if a value does not fit after all: an array of another shape, a huge int.
        """
        keys, scalars = self._scalars
        try:
            scalars.pack_into(memory, at, *[info[key] for key in keys])
        except struct.error:
            return False
        for entry in self._arrays:
            value = info[entry.key]
            if value.dtype != entry.dtype or value.shape != entry.shape:
                return False
            start = at + entry.offset
            memory[start : start + entry.size_bytes] = value.tobytes()
        return True

    def read(self, memory: Any, at: int) -> Info:
        """The info in a row, its values of the types that they had."""
        keys, scalars = self._scalars
        info: Info = dict.fromkeys(self.keys)
        info.update(zip(keys, scalars.unpack_from(memory, at), strict=True))
        for entry in self.entries:
            if entry.kind is np.ndarray:
                count, start = int(np.prod(entry.shape)), at + entry.offset
                info[entry.key] = array_at(memory, start, entry.dtype, count).reshape(entry.shape)
            elif entry.kind not in (int, float, bool):
                info[entry.key] = entry.kind(info[entry.key])
        return info

    def columns(self, rows: npt.NDArray[np.uint8]) -> dict[str, npt.NDArray[Any]]:
        """Views of ``rows``, uint8 ``[n, bytes]``: one ``[n, *shape]`` for each key."""
        return {
            entry.key: rows[:, entry.offset : entry.offset + entry.size_bytes]
            .view(entry.dtype)
            .reshape((len(rows), *entry.shape))
            for entry in self.entries
        }


class UnmergeableError(Exception):
    """Gymnasium cannot make one vector info of what some envs have told; its cause says why.

    Attributes:
        place: of the env whose info does not go with those before it.
    """

    def __init__(self, place: int) -> None:
        super().__init__(f"the info at place {place} does not go with those before it")
        self.place = place


class VectorInfos(gym.vector.VectorEnv[Any, Any, Any]):
    """Merges infos as Gymnasium's vector envs do, by their own code.

    Args:
        num_envs: how many infos there can be.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def merge(self, infos: Iterable[tuple[int, Info]], merged: Info) -> Info:
        """Put the infos of some envs, in order, into the vector form; return ``merged``.

        Raises:
            UnmergeableError: they do not go together: a number here, a dict or a text there.
        """
        for i, info in infos:
            try:
                merged = self._add_info(merged, info, i)
            except Exception as error:
                raise UnmergeableError(i) from error
        return merged


def kept(info: Mapping[Any, Any]) -> dict[Any, Any]:
    """An info that nothing its env does later changes, as far as Gymnasium copies values.

    It copies numbers, arrays and what is nested in dicts out of an info; other objects it keeps.
    """
    return {key: _kept_value(value) for key, value in info.items()}


def _kept_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return kept(value) if isinstance(value, dict) else value


def merge_loose(loose: Mapping[int, Sequence[Info]], merged: Info, num_envs: int) -> Info:
    """Put infos, by the place of their env, into the vector form; return ``merged``."""
    every = [(place, info) for place in sorted(loose) for info in loose[place]]
    if every and not merged and all(_is_final(info) for _, info in every):
        return _merge_finals(every, num_envs)
    return VectorInfos(num_envs).merge(every, merged)


def _is_final(info: Info) -> bool:
    return list(info) == ["final_obs", "final_info"] and isinstance(info["final_info"], dict)


def _merge_finals(finals: Sequence[tuple[int, Info]], num_envs: int) -> Info:
    """What Gymnasium makes of ends of episodes and nothing else, in a third of the time."""
    observations = np.empty(num_envs, np.object_)
    told = np.zeros(num_envs, np.bool_)
    for place, final in finals:
        observations[place] = final["final_obs"]
        told[place] = True
    infos = [(place, final["final_info"]) for place, final in finals if final["final_info"]]
    return {
        "final_obs": observations,
        "_final_obs": told,
        "final_info": VectorInfos(num_envs).merge(infos, {}) if infos else {},
        "_final_info": told.copy(),
    }


def merge_columns(
    forms: Sequence[tuple[Sequence[int], dict[str, npt.NDArray[Any]]]], num_envs: int
) -> Info | None:
    """Merge the columns of some forms into the vector form.

    Args:
        forms: for each, which envs have it, and its columns over these envs.
        num_envs: how many envs.

    Returns:
        What Gymnasium would make of these infos; None if that depends on the order of the envs,
        because two forms have the same key with differing types.
    """
    merged: Info = {}
    for rows, columns in forms:
        for key, values in columns.items():
            if key not in merged:
                merged[key] = np.zeros((num_envs, *values.shape[1:]), values.dtype)
                merged[f"_{key}"] = np.zeros(num_envs, np.bool_)
            known = merged[key]
            if known.dtype != values.dtype or known.shape[1:] != values.shape[1:]:
                return None
            known[rows] = values
            merged[f"_{key}"][rows] = True
    return merged


def element(value: Any) -> Any:
    """A value of a column as a single env would return it, safe from what becomes of the column."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return bool(value) if isinstance(value, np.bool_) else value


def _column_of(value: Any) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and shape of the column that Gymnasium makes of a value; None if it is no number."""
    kind = type(value)
    if kind is np.ndarray:
        dtype, shape = value.dtype, value.shape
    elif kind in (int, float, bool) or issubclass(kind, np.number):
        dtype, shape = np.dtype(kind), ()
    else:
        return None
    return (dtype, shape) if dtype.isnative and _name(dtype) in _CODES else None


def _name(dtype: np.dtype[Any]) -> str:
    return f"{dtype.kind}{dtype.itemsize}"


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _WORD_BYTES) * _WORD_BYTES
