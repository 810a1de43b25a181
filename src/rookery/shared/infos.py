"""Infos: their numbers as columns, and their merging into Gymnasium's vector form.

Most envs return the same few numbers with every step. The first such info makes an
:class:`InfoForm`. From then on the numbers are in fixed places of a row, and the infos of all envs
become one column for each key. Everything that fits no form is *loose*: strings, None, nested
dicts, an array with a changed shape. Loose infos are passed beside the row as dicts.
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
# Letters of the struct module. Unlike numpy's letters, their sizes are the same everywhere.
_CODES = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I"}
_CODES |= {"u8": "Q", "f2": "e", "f4": "f", "f8": "d"}
_OBJECT_KEYS = ("final_obs",)  # Gymnasium merges these into arrays of objects
_MOST_BYTES = 2**22  # largest size of a form


@dataclass(frozen=True)
class InfoEntry:
    """A key of an info and the place of its value in a row.

    Attributes:
        key: key in the info.
        kind: type of the value: a number type or ``numpy.ndarray``.
        dtype: dtype of the column that Gymnasium makes of the key.
        shape: shape of one value.
        offset: first byte of the value in the row, a multiple of 8.
    """

    key: str
    kind: type
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size_bytes(self) -> int:
        """Size of one value, without padding."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


@dataclass(frozen=True)
class InfoForm:
    """The places of the numbers of an info, in the order of its keys.

    Attributes:
        entries: one entry for each number or array of numbers.
        order: all keys of the info in their order, including keys without an entry.
    """

    entries: tuple[InfoEntry, ...]
    order: tuple[Any, ...] = ()  # strings, if there are entries

    def __reduce__(self) -> Any:
        return InfoForm, (self.entries, self.order)  # without the cached properties

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> InfoForm:
        """Return the form of an info, with entries for its numbers and arrays of numbers.

        Two kinds of infos have no entries. If a key begins with an underscore, it may be the mask
        of another key, and the result then depends on the order of merging. If a key is not a
        string, its ``repr`` may differ in another process.
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
        """Positive number that identifies the form, the same in every process."""
        entries = [(e.key, e.kind, e.dtype, e.shape) for e in self.entries]
        described = repr((entries, self.order))
        digest = hashlib.blake2b(described.encode(), digest_size=7).digest()
        return int.from_bytes(digest, "little") + 1

    @cached_property
    def size_bytes(self) -> int:
        """Size of the numbers in a row, a multiple of 8."""
        return max((e.offset + _padded(e.size_bytes) for e in self.entries), default=0)

    @cached_property
    def is_whole(self) -> bool:
        """True if every key of the info has an entry."""
        return len(self.entries) == len(self.order)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the entries."""
        return tuple(entry.key for entry in self.entries)

    @cached_property
    def _scalars(self) -> tuple[tuple[str, ...], struct.Struct]:
        """Keys of the numbers, and a struct that packs them around the arrays."""
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
            info: info to write; keys without an entry are ignored.
            memory: memoryview of bytes.
            at: first byte of the row in ``memory``.

        Returns:
            False if a value does not fit: an array with another shape, or a very large int.
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
        """Return the info in a row. Its values have their original types."""
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
        """Return a view ``[n, *shape]`` of ``rows``, uint8 ``[n, bytes]``, for each key."""
        return {
            entry.key: rows[:, entry.offset : entry.offset + entry.size_bytes]
            .view(entry.dtype)
            .reshape((len(rows), *entry.shape))
            for entry in self.entries
        }


class UnmergeableError(Exception):
    """Gymnasium cannot merge the infos of some envs; ``__cause__`` has the reason.

    Attributes:
        place: place of the first env with an info that does not fit the infos before it.
    """

    def __init__(self, place: int) -> None:
        super().__init__(f"the info at place {place} does not fit those before it")
        self.place = place


class VectorInfos(gym.vector.VectorEnv[Any, Any, Any]):
    """Merges infos with the code of Gymnasium's vector envs.

    Args:
        num_envs: length of the merged arrays.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs

    def merge(self, infos: Iterable[tuple[int, Info]], merged: Info) -> Info:
        """Merge infos, given with the places of their envs, into ``merged`` and return it.

        Raises:
            UnmergeableError: the infos do not fit together, for example a number and a dict for one
                key.
        """
        for i, info in infos:
            try:
                merged = self._add_info(merged, info, i)
            except Exception as error:
                raise UnmergeableError(i) from error
        return merged


def copied_info(info: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a copy of an info that its env cannot change later.

    Numbers, arrays and nested dicts are copied, as Gymnasium copies them when it merges infos.
    Other objects are not copied.
    """
    return {key: _copied_value(value) for key, value in info.items()}


def _copied_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    return copied_info(value) if isinstance(value, dict) else value


def merge_loose(loose: Mapping[int, Sequence[Info]], merged: Info, num_envs: int) -> Info:
    """Merge infos, given by the place of their env, into ``merged`` and return it."""
    every = [(place, info) for place in sorted(loose) for info in loose[place]]
    if every and not merged and all(_is_final(info) for _, info in every):
        return _merge_finals(every, num_envs)
    return VectorInfos(num_envs).merge(every, merged)


def _is_final(info: Info) -> bool:
    return list(info) == ["final_obs", "final_info"] and isinstance(info["final_info"], dict)


def _merge_finals(finals: Sequence[tuple[int, Info]], num_envs: int) -> Info:
    """Merge infos that only report ends of episodes, in a third of Gymnasium's time."""
    observations = np.empty(num_envs, np.object_)
    mask = np.zeros(num_envs, np.bool_)
    for place, final in finals:
        observations[place] = final["final_obs"]
        mask[place] = True
    infos = [(place, final["final_info"]) for place, final in finals if final["final_info"]]
    return {
        "final_obs": observations,
        "_final_obs": mask,
        "final_info": VectorInfos(num_envs).merge(infos, {}) if infos else {},
        "_final_info": mask.copy(),
    }


def merge_columns(
    forms: Sequence[tuple[Sequence[int], dict[str, npt.NDArray[Any]]]], num_envs: int
) -> Info | None:
    """Merge the columns of several forms into the vector form.

    Args:
        forms: for each form, the envs that have it, and its columns over these envs.
        num_envs: length of the merged arrays.

    Returns:
        The infos as Gymnasium merges them. None if two forms have the same key with different
            types, because the result then depends on the order of the envs.
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
    """Return a value of a column as a single env would return it, as a copy."""
    if isinstance(value, np.ndarray):
        return value.copy()
    return bool(value) if isinstance(value, np.bool_) else value


def _column_of(value: Any) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return dtype and shape of a value's column in Gymnasium, or None if it is not a number."""
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
