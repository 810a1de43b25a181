"""Values without a fixed shape, as bytes: Text, Sequence, Graph, OneOf, and what users invent.

What comes back equals what went in, in type, dtype and shape. Arrays and strings are written as
they lie in memory, with their lengths before them. A value that is not built as its space says, and
any value of a space that is not Gymnasium's, is pickled; the first byte tells which of the two it
is.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.spaces.graph import GraphInstance

from rookery.env.travel import pickled

_ARRAYS, _PICKLE = b"A", b"P"
_COUNT = struct.Struct("<q")
# An array is a letter for its dtype, its number of axes, their lengths, and what it holds.
_DTYPES = {ord(char): np.dtype(char) for char in "?bhilqBHILQefdFD"}
_LENGTHS = [struct.Struct(f"<{ndim}q") for ndim in range(33)]
_HEADS = {(chr(c), ndim): bytes((c, ndim)) for c in _DTYPES for ndim in range(len(_LENGTHS))}
_NONE = b"-"
_ARRAY_SPACES = (spaces.Box, spaces.MultiBinary, spaces.MultiDiscrete)


class _UnfitError(Exception):
    """A value is not built as its space says."""


@dataclass(frozen=True)
class Codec:
    """How values of one space are written and read.

    Attributes:
        write: ``write(value, parts)`` appends bytes to a list; raises _UnfitError.
        read: ``read(view, at)`` returns the value whose bytes begin at ``at``, and where they end.
    """

    write: Callable[[Any, list[bytes]], None]
    read: Callable[[Any, int], tuple[Any, int]]


class FreeForm:
    """The form in which values of ``space`` travel.

    Args:
        space: whose values.
        pickle_value: makes bytes of values that have no other form.
    """

    def __init__(self, space: Space[Any], pickle_value: Callable[[Any], bytes] = pickled) -> None:
        self._codec = codec(space)
        self._pickle_value = pickle_value

    def encode(self, value: Any) -> bytes:
        """The bytes of a value."""
        parts = [_ARRAYS]
        try:
            self._codec.write(value, parts)
        except _UnfitError:
            return _PICKLE + self._pickle_value(value)
        return b"".join(parts)

    def decode(self, view: Any) -> Any:
        """The value whose bytes ``view``, a memoryview, has; it shares no memory with them."""
        if view[:1] == _PICKLE:
            return pickle.loads(view[1:])
        return self._codec.read(view, 1)[0]


@singledispatch
def codec(space: Space[Any]) -> Codec:
    """How values of ``space`` are written and read."""

    def write(value: Any, parts: list[bytes]) -> None:
        raise _UnfitError

    def read(view: Any, at: int) -> tuple[Any, int]:
        raise AssertionError(f"nothing of a {type(space).__name__} space is ever written as arrays")

    return Codec(write, read)


@codec.register(spaces.Box)
@codec.register(spaces.MultiBinary)
@codec.register(spaces.MultiDiscrete)
def _codec_array(space: Space[Any]) -> Codec:
    assert space.shape is not None
    shape, dtype = space.shape, np.dtype(space.dtype)
    count, size_bytes = int(np.prod(shape)), int(np.prod(shape)) * dtype.itemsize

    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not np.ndarray or value.dtype != dtype or value.shape != shape:
            raise _UnfitError
        parts.append(value.tobytes())

    def read(view: Any, at: int) -> tuple[Any, int]:
        return array_at(view, at, dtype, count).reshape(shape), at + size_bytes

    return Codec(write, read)


@codec.register(spaces.Discrete)
def _codec_discrete(space: spaces.Discrete) -> Codec:
    dtype = np.dtype(space.dtype)

    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not dtype.type:
            raise _UnfitError
        parts.append(value.tobytes())

    def read(view: Any, at: int) -> tuple[Any, int]:
        return np.frombuffer(view, dtype, 1, at)[0], at + dtype.itemsize

    return Codec(write, read)


@codec.register(spaces.Text)
def _codec_text(space: spaces.Text) -> Codec:
    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not str:
            raise _UnfitError
        text = value.encode("utf-8", "surrogatepass")
        parts += (_COUNT.pack(len(text)), text)

    def read(view: Any, at: int) -> tuple[Any, int]:
        start, stop = _span(view, at)
        return str(view[start:stop], "utf-8", "surrogatepass"), stop

    return Codec(write, read)


@codec.register(spaces.Dict)
def _codec_dict(space: spaces.Dict) -> Codec:
    return _codec_of_fields(dict, list(space.spaces), [codec(sub) for sub in space.spaces.values()])


@codec.register(spaces.Tuple)
def _codec_tuple(space: spaces.Tuple[Any]) -> Codec:
    return _codec_of_fields(tuple, range(len(space.spaces)), [codec(sub) for sub in space.spaces])


@codec.register(spaces.Sequence)
def _codec_sequence(space: Any) -> Codec:
    if space.stack:
        return _stacked(space.feature_space)
    feature = codec(space.feature_space)

    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not tuple:
            raise _UnfitError
        parts.append(_COUNT.pack(len(value)))
        for item in value:
            feature.write(item, parts)

    if isinstance(space.feature_space, _ARRAY_SPACES) and space.feature_space.shape:
        return Codec(write, _reader_of_equal_arrays(space.feature_space))

    def read(view: Any, at: int) -> tuple[Any, int]:
        (count,), at = _COUNT.unpack_from(view, at), at + _COUNT.size
        items = []
        for _ in range(count):
            item, at = feature.read(view, at)
            items.append(item)
        return tuple(items), at

    return Codec(write, read)


def _reader_of_equal_arrays(feature: Space[Any]) -> Callable[[Any, int], tuple[Any, int]]:
    """Reads all of them as one array, of which the elements are views: 1 us for four, not 4."""
    assert feature.shape is not None
    shape, dtype = feature.shape, np.dtype(feature.dtype)
    size = math.prod(shape)

    def read(view: Any, at: int) -> tuple[Any, int]:
        (count,) = _COUNT.unpack_from(view, at)
        at += _COUNT.size
        elements = array_at(view, at, dtype, count * size).reshape(count, *shape)
        return tuple(elements), at + elements.nbytes

    return read


def _stacked(feature: Space[Any]) -> Codec:
    """A sequence whose elements are stacked: arrays with one more axis than the feature's."""
    if isinstance(feature, spaces.Dict):
        columns = [_stacked(sub) for sub in feature.spaces.values()]
        return _codec_of_fields(dict, list(feature.spaces), columns)
    if isinstance(feature, spaces.Tuple):
        columns = [_stacked(sub) for sub in feature.spaces]
        return _codec_of_fields(tuple, range(len(columns)), columns)
    return Codec(_write_any_array, _read_any_array)


def _codec_of_fields(kind: Any, keys: Sequence[Any], fields: Sequence[Codec]) -> Codec:
    """Of dicts with these keys, in their order, or of tuples."""

    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not kind or len(value) != len(keys):
            raise _UnfitError
        if kind is dict and list(value) != keys:
            raise _UnfitError
        for key, field in zip(keys, fields, strict=True):
            field.write(value[key], parts)

    def read(view: Any, at: int) -> tuple[Any, int]:
        items = []
        for field in fields:
            item, at = field.read(view, at)
            items.append(item)
        return (dict(zip(keys, items, strict=True)) if kind is dict else tuple(items)), at

    return Codec(write, read)


@codec.register(spaces.Graph)
def _codec_graph(space: spaces.Graph) -> Codec:
    def write(value: Any, parts: list[bytes]) -> None:
        if type(value) is not GraphInstance:
            raise _UnfitError
        for part in value:
            if part is None:
                parts.append(_NONE)
            else:
                _write_any_array(part, parts)

    def read(view: Any, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        for _ in range(3):
            if view[at : at + 1] == _NONE:
                item, at = None, at + 1
            else:
                item, at = _read_any_array(view, at)
            items.append(item)
        nodes, edges, edge_links = items
        return GraphInstance(nodes, edges, edge_links), at

    return Codec(write, read)


@codec.register(spaces.OneOf)
def _codec_one_of(space: Any) -> Codec:
    choices = [codec(sub) for sub in space.spaces]

    def write(value: Any, parts: list[bytes]) -> None:
        fits = type(value) is tuple and len(value) == 2 and type(value[0]) is np.int64
        if not fits or not 0 <= value[0] < len(choices):
            raise _UnfitError
        parts.append(_COUNT.pack(value[0]))
        choices[value[0]].write(value[1], parts)

    def read(view: Any, at: int) -> tuple[Any, int]:
        (choice,) = _COUNT.unpack_from(view, at)
        item, at = choices[choice].read(view, at + _COUNT.size)
        return (np.int64(choice), item), at

    return Codec(write, read)


def _write_any_array(value: Any, parts: list[bytes]) -> None:
    if type(value) is not np.ndarray or not value.dtype.isnative:
        raise _UnfitError
    head = _HEADS.get((value.dtype.char, value.ndim))
    if head is None:
        raise _UnfitError
    parts += (head, _LENGTHS[value.ndim].pack(*value.shape), value.tobytes())


def _read_any_array(view: Any, at: int) -> tuple[Any, int]:
    dtype, ndim = _DTYPES[view[at]], view[at + 1]
    lengths = _LENGTHS[ndim]
    shape = lengths.unpack_from(view, at + 2)
    at += 2 + lengths.size
    count = math.prod(shape)
    array = array_at(view, at, dtype, count)
    return array if ndim == 1 else array.reshape(shape), at + count * dtype.itemsize


def array_at(view: Any, at: int, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """A copy of ``count`` numbers that begin at byte ``at`` of a memoryview."""
    # frombuffer knows no empty arrays
    return np.frombuffer(view, dtype, count, at).copy() if count else np.empty(0, dtype)


def _span(view: Any, at: int) -> tuple[int, int]:
    (length,) = _COUNT.unpack_from(view, at)
    start = at + _COUNT.size
    return start, start + length
