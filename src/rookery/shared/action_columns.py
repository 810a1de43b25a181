"""Actions as columns, in the number types that callers give, and those without a fixed shape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rookery.common.pickling import pickled_for_workers
from rookery.errors import SpaceTypeError
from rookery.shared.freeform import FreeForm
from rookery.shared.slab import LENGTH, Slab, SlabFull
from rookery.shared.spaces import (
    Array,
    FreeLeaf,
    Leaf,
    as_array,
    batch_mismatch,
    values_mismatch,
)

_WORD_BYTES = 8


def action_row_bytes(leaf: Leaf) -> int:
    """Room for the action of one env, in whatever number type."""
    return math.prod(leaf.shape) * max(leaf.dtype.itemsize, _WORD_BYTES)


class ActionColumn:
    """Actions of one leaf, kept in whatever number type the caller gave them.

    A float64 action for a float32 space reaches the env as float64, exactly as a plain loop or
    Gymnasium's own vector envs would hand it over; so trajectories do not depend on the backend.

    Args:
        leaf: the part of the action space.
        raw: uint8 ``[n, row_bytes]``, room for 8-byte elements.
        dtype_codes: int64 ``[n]``, where the number types are noted for the reader.
    """

    def __init__(self, leaf: Leaf, raw: Array, dtype_codes: Array) -> None:
        self.path = leaf.path
        self._dtype = leaf.dtype
        self._dtype_codes = dtype_codes
        self._code = -1  # of all envs, as written last
        self._shape = (len(raw), *leaf.shape)
        self._views: dict[Any, Array] = {}  # by dtype for the writer, by its code for the reader
        count = math.prod(leaf.shape)
        fitting = [np.dtype(c) for c in "?bhilqBHILQefd"]
        for dtype in {leaf.dtype, *fitting}:
            view = raw[:, : count * dtype.itemsize].view(dtype).reshape(self._shape)
            self._views[dtype] = self._views[dtype.num] = view

    def write(self, actions: Any, env_ids: Any = ...) -> None:
        """Note the actions of all envs, or of ``env_ids``; anything with shape ``[n, *shape]``.

        Raises:
            SpaceError: when the shape differs or the dtype cannot stand for the space's.
        """
        if type(actions) is not np.ndarray:
            actions = as_array(actions, self.path)
        expected = self._shape if env_ids is ... else (len(env_ids), *self._shape[1:])
        if actions.shape != expected:
            raise batch_mismatch(actions, expected, self.path)
        view = self._views.get(actions.dtype)
        if view is None:
            view = self._views[self._dtype]
            if not np.can_cast(actions.dtype, self._dtype, "same_kind"):
                raise SpaceTypeError(
                    f"{self.path} has dtype {actions.dtype}, expected {self._dtype}"
                )
        view[env_ids] = actions
        if env_ids is not ... or view.dtype.num != self._code:
            self._dtype_codes[env_ids] = view.dtype.num
            self._code = view.dtype.num if env_ids is ... else -1

    def read(self, env_ids: Sequence[int]) -> Array:
        """A copy, which envs may keep, of rows that were written together."""
        view = self._views[self._dtype_codes[env_ids[0]]]
        if type(env_ids) is range:
            return view[env_ids.start : env_ids.stop].copy()
        return view[list(env_ids)]


class FreeActions:
    """The free values of actions: per env a row of lengths and encoded values, or the values.

    Args:
        slab: where they lie.
        free_leaves: of the action space.
        num_envs: how many envs.
        keeps_objects: whether the envs live in this process, so that nothing need be encoded.
    """

    def __init__(
        self, slab: Slab, free_leaves: Sequence[FreeLeaf], num_envs: int, keeps_objects: bool
    ) -> None:
        self._slab = slab
        self._leaves = free_leaves
        self._forms = [FreeForm(leaf.space) for leaf in free_leaves]
        self._objects: list[Any] | None = [None] * num_envs if keeps_objects else None

    def pickle_main_by_value(self) -> None:
        """From now on, write for readers that have not run the caller's script."""
        self._forms = [FreeForm(leaf.space, pickled_for_workers) for leaf in self._leaves]

    def write(self, columns: Sequence[Any], env_ids: Sequence[int]) -> None:
        """Note the values of some envs, one column for each leaf.

        Raises:
            SpaceError: when there are not as many values as envs.
            SlabFull: when there is too little room; nothing was noted then.
        """
        for leaf, column in zip(self._leaves, columns, strict=True):
            if not isinstance(column, (tuple, list)) or len(column) != len(env_ids):
                raise values_mismatch(column, len(env_ids), leaf.path)
        values = list(zip(*columns, strict=True))
        if self._objects is not None:
            for env_id, own in zip(env_ids, values, strict=True):
                self._objects[env_id] = own
            return
        tails = [self._encoded(own) for own in values]
        need_bytes = max(map(len, tails))
        if need_bytes > self._slab.shape.action_bytes:
            raise SlabFull(need_bytes)
        for env_id, tail in zip(env_ids, tails, strict=True):
            self._slab.action_tails[env_id].data[: len(tail)] = tail

    def read(self, env_ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Per leaf, the values of some envs."""
        decoded = self._decoded if self._objects is None else self._objects.__getitem__
        return list(zip(*[decoded(env_id) for env_id in env_ids], strict=True))

    def _encoded(self, values: Iterable[Any]) -> bytes:
        encoded = [form.encode(value) for form, value in zip(self._forms, values, strict=True)]
        return b"".join(LENGTH.pack(len(part)) + part for part in encoded)

    def _decoded(self, env_id: int) -> list[Any]:
        view, at, values = self._slab.action_tails[env_id].data, 0, []
        for form in self._forms:
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(view, at)[0]
            values.append(form.decode(view[start:at]))
        return values
