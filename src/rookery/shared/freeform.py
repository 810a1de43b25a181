"""Free values as bytes: values of Text, Sequence, Graph, OneOf and custom spaces.

Decoding returns a value equal to the encoded one, in type, dtype and shape. The first byte of an
encoding is its kind. The arrays of a Graph or a Sequence are written as they are in memory, after
their dtypes and shapes. That is several times faster than pickling many small arrays. All other
values are pickled.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.spaces.graph import GraphInstance

from rookery.common.pickling import pickled

_ARRAY, _EQUAL_ARRAYS, _GRAPH, _PICKLE = b"A", b"E", b"G", b"P"
_COUNT = struct.Struct("<q")
# An array is written as a letter for its dtype, its number of axes, their lengths, and its data.
_DTYPES = {ord(char): np.dtype(char) for char in "?bhilqBHILQefdFD"}
_LENGTHS = [struct.Struct(f"<{ndim}q") for ndim in range(33)]
_HEADS = {(chr(c), ndim): bytes((c, ndim)) for c in _DTYPES for ndim in range(len(_LENGTHS))}
_NONE = b"-"


class FreeForm:
    """Encoding of the values of ``space`` as bytes.

    Args:
        space: space of the values.
        pickle_value: function that pickles values that are not arrays.
    """

    def __init__(self, space: Space[Any], pickle_value: Callable[[Any], bytes] = pickled) -> None:
        self._may_hold_arrays = isinstance(space, (spaces.Sequence, spaces.Graph))
        self._pickle_value = pickle_value

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        parts = _parts(value) if self._may_hold_arrays else None
        return _PICKLE + self._pickle_value(value) if parts is None else b"".join(parts)

    def decode(self, view: Any) -> Any:
        """Return the value encoded in ``view``, a memoryview; it shares no memory with it."""
        kind = view[:1]
        if kind == _PICKLE:
            return pickle.loads(view[1:])
        if kind == _GRAPH:
            return _read_graph(view)
        if kind == _EQUAL_ARRAYS:
            return _read_equal_arrays(view)
        return _read_array(view, 1)[0]


def _parts(value: Any) -> list[bytes] | None:
    """Return the encoding of a value as parts, or None if the value is not made of arrays alone."""
    kind = type(value)
    if kind is tuple:
        return _equal_arrays(value)
    if kind is not GraphInstance:
        array = _array(value)
        return None if array is None else [_ARRAY, *array]
    parts = [_GRAPH]
    for item in value:
        array = [_NONE] if item is None else _array(item)
        if array is None:
            return None
        parts += array
    return parts


def _array(value: Any) -> list[bytes] | None:
    if type(value) is not np.ndarray or not value.dtype.isnative:
        return None
    head = _HEADS.get((value.dtype.char, value.ndim))
    if head is None:
        return None
    return [head, _LENGTHS[value.ndim].pack(*value.shape), value.tobytes()]


def _read_array(view: Any, at: int) -> tuple[Any, int]:
    dtype, shape, at = _read_head(view, at)
    count = math.prod(shape)
    return array_at(view, at, dtype, count).reshape(shape), at + count * dtype.itemsize


def _equal_arrays(items: tuple[Any, ...]) -> list[bytes] | None:
    """Encode arrays with one dtype and shape and at least one axis; only the first has a head."""
    first = _array(items[0]) if items else None
    if first is None or not items[0].shape:
        return None
    dtype, shape = items[0].dtype, items[0].shape
    for item in items:
        if type(item) is not np.ndarray or item.dtype != dtype or item.shape != shape:
            return None
    rest = [item.tobytes() for item in items[1:]]
    return [_EQUAL_ARRAYS, _COUNT.pack(len(items)), *first, *rest]


def _read_equal_arrays(view: Any) -> tuple[Any, ...]:
    """Return views of one array with all elements: for four elements 1 us, not 4."""
    (count,) = _COUNT.unpack_from(view, 1)
    dtype, shape, at = _read_head(view, 1 + _COUNT.size)
    return tuple(array_at(view, at, dtype, count * math.prod(shape)).reshape(count, *shape))


def _read_graph(view: Any) -> GraphInstance:
    items: list[Any] = []
    at = 1
    for _ in range(3):
        if view[at : at + 1] == _NONE:
            item, at = None, at + 1
        else:
            item, at = _read_array(view, at)
        items.append(item)
    nodes, edges, edge_links = items
    return GraphInstance(nodes, edges, edge_links)


def _read_head(view: Any, at: int) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    lengths = _LENGTHS[view[at + 1]]
    return _DTYPES[view[at]], lengths.unpack_from(view, at + 2), at + 2 + lengths.size


def array_at(view: Any, at: int, dtype: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    """Return a copy of ``count`` numbers from byte ``at`` of a memoryview on."""
    # np.frombuffer raises for empty arrays
    return np.frombuffer(view, dtype, count, at).copy() if count else np.empty(0, dtype)
