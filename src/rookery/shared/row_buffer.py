"""Row buffer: for each env a row of bytes with everything that has no column.

Each env has one row for each buffer. A row has a fixed part and a tail. The fixed part holds the
numbers of an info, see :mod:`rookery.shared.infos`. The tail holds the free values of an
observation, see :mod:`rookery.shared.freeform`, followed by pickles of loose infos. `RowWriter`
writes rows on the side of the envs, and `RowReader` reads them in the caller. Free values of
actions have rows too; `FreeActions` writes and reads these.

Rows grow. A tail that does not fit is sent as a message, and the caller makes larger rows before
its next order. Rows do not grow beyond a total size, because very large values are often rare and
would then waste memory. Such values are always sent as messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.common.pickling import pickled_for_workers
from rookery.shared.block import ColumnSizes
from rookery.shared.freeform import FreeForm
from rookery.shared.infos import Info, InfoForm
from rookery.shared.spaces import Array, FreeLeaf, values_mismatch

# Special values of `tail_used`.
TAIL_IN_MESSAGE = -1  # the tail did not fit and was sent as a message
UNCHANGED = -2  # the free values are those that were read last

_FREE_BYTES = 2**24  # rows grow up to this total size whenever something does not fit
_OFTEN = 8  # number of overflows before rows grow further
_MOST_BYTES = 2**27  # largest total size

LENGTH = struct.Struct("<q")  # before each free value


@dataclass(frozen=True)
class RowShape:
    """Sizes of the parts of a row in bytes."""

    fixed_bytes: int = 256
    tail_bytes: int = 512
    action_bytes: int = 64

    def columns(self, num_envs: int, num_buffers: int) -> ColumnSizes:
        """Return name -> (shape, dtype) of the arrays of a row buffer."""
        word, byte = np.dtype(np.int64), np.dtype(np.uint8)
        columns: ColumnSizes = {}
        for b in range(num_buffers):
            columns[f"form{b}"] = columns[f"tail_used{b}"] = ((num_envs,), word)
            columns[f"loose{b}"] = ((num_envs,), word)
            columns[f"fixed{b}"] = ((num_envs, self.fixed_bytes), byte)
            columns[f"tail{b}"] = ((num_envs, self.tail_bytes), byte)
        columns["action_tail"] = ((num_envs, self.action_bytes), byte)
        return columns

    def grown(self, fixed_bytes: int, tail_bytes: int, action_bytes: int = 0) -> RowShape:
        """Return a shape with at least these sizes; parts that are too small are doubled."""
        return RowShape(
            _doubled_to(self.fixed_bytes, fixed_bytes),
            _doubled_to(self.tail_bytes, tail_bytes),
            _doubled_to(self.action_bytes, action_bytes),
        )


def _doubled_to(have: int, need: int) -> int:
    while have < need:
        have *= 2
    return have


@dataclass(frozen=True)
class RowExtras:
    """Values that a batch sends beside its rows.

    Attributes:
        forms: forms of infos that are used in rows from now on.
        tails: env id and tail, for tails that did not fit into their row.
    """

    forms: tuple[InfoForm, ...] = ()
    tails: tuple[tuple[int, bytes], ...] = ()


ROWS_ONLY = RowExtras()  # there are values in the rows, and nothing beside them


class RowTooSmall(Exception):
    """The rows are too small for some actions. Never reaches a user.

    Attributes:
        need_bytes: size that the actions need in a row.
    """

    def __init__(self, need_bytes: int) -> None:
        super().__init__(need_bytes)
        self.need_bytes = need_bytes


class RowBuffer:
    """The arrays of the rows. Larger arrays may replace them.

    Attributes:
        shape: sizes of the parts of a row.
        forms: per buffer, int64 ``[n]``: id of the form of the info in the fixed part, or 0.
        tail_used: per buffer, int64 ``[n]``: used bytes of the tail, or one of the constants above.
        loose: per buffer, int64 ``[n]``: number of bytes of loose infos at the end of the tail.
        fixed: per buffer, uint8 ``[n, fixed_bytes]``.
        tails: per buffer, uint8 ``[n, tail_bytes]``.
        action_tails: uint8 ``[n, action_bytes]``, the free values of actions.
        added: per buffer and env id, infos that precede the infos in the row. They are objects of
            this process and are not in shared memory.
    """

    def __init__(self, num_buffers: int, shape: RowShape, views: Mapping[str, Any]) -> None:
        self._num_buffers = num_buffers
        self.added: list[dict[int, list[Info]]] = [{} for _ in range(num_buffers)]
        self.bind(shape, views)

    def enlarge(self, shape: RowShape, views: Mapping[str, Any]) -> None:
        """Replace the arrays by larger ones, and copy all rows."""
        before = self._arrays()
        self.bind(shape, views)
        for new, old in zip(self._arrays(), before, strict=True):
            new[..., : old.shape[-1]] = old

    def may_grow(self, shape: RowShape, num_envs: int, overflows: int) -> bool:
        """Return True if larger rows are worth their memory.

        Args:
            shape: shape of the larger rows.
            num_envs: number of rows in each buffer.
            overflows: how often something did not fit so far.
        """
        per_env = self._num_buffers * (shape.fixed_bytes + shape.tail_bytes) + shape.action_bytes
        size_bytes = num_envs * per_env
        return size_bytes <= _FREE_BYTES or (overflows >= _OFTEN and size_bytes <= _MOST_BYTES)

    def bind(self, shape: RowShape, views: Mapping[str, Any]) -> None:
        """Replace the arrays, without copying rows, by one for each of ``shape.columns()``."""
        buffers = range(self._num_buffers)
        self.shape = shape
        self.forms = [views[f"form{b}"] for b in buffers]
        self.tail_used = [views[f"tail_used{b}"] for b in buffers]
        self.loose = [views[f"loose{b}"] for b in buffers]
        self.fixed = [views[f"fixed{b}"] for b in buffers]
        self.tails = [views[f"tail{b}"] for b in buffers]
        self.action_tails = views["action_tail"]

    def _arrays(self) -> list[Array]:
        per_buffer = (self.forms, self.tail_used, self.loose, self.fixed, self.tails)
        return [*(array for arrays in per_buffer for array in arrays), self.action_tails]

    def forget_added(self, env_ids: Sequence[int], buffer: int) -> None:
        """Drop the infos in ``added`` that belong to an earlier result in the same buffer."""
        added = self.added[buffer]
        if added:
            for env_id in env_ids:
                added.pop(env_id, None)

    def void_rows(self, env_ids: Any, buffer: int) -> None:
        """Mark the rows of some envs: no info, and the free values that were read last."""
        ids = list(env_ids)
        self.forms[buffer][ids] = self.loose[buffer][ids] = 0
        self.tail_used[buffer][ids] = UNCHANGED


class FreeActions:
    """The free values of actions, encoded in rows, or as objects within one process.

    Args:
        rows: row buffer with the ``action_tails``.
        free_leaves: leaves of the action space without a fixed shape.
        num_envs: number of envs.
        keeps_objects: True if the envs are in this process, so that nothing is encoded.
    """

    def __init__(
        self, rows: RowBuffer, free_leaves: Sequence[FreeLeaf], num_envs: int, keeps_objects: bool
    ) -> None:
        self._rows = rows
        self._leaves = free_leaves
        self._forms = [FreeForm(leaf.space) for leaf in free_leaves]
        self._objects: list[Any] | None = [None] * num_envs if keeps_objects else None

    def pickle_main_by_value(self) -> None:
        """Write all later values for readers that have not run the caller's script."""
        self._forms = [FreeForm(leaf.space, pickled_for_workers) for leaf in self._leaves]

    def write(self, columns: Sequence[Any], env_ids: Sequence[int]) -> None:
        """Write the values of some envs, one column for each leaf.

        Raises:
            SpaceError: the number of values differs from the number of envs.
            RowTooSmall: the values do not fit into the rows. Nothing was written.
        """
        for leaf, column in zip(self._leaves, columns, strict=True):
            if not isinstance(column, (tuple, list)) or len(column) != len(env_ids):
                raise values_mismatch(column, len(env_ids), leaf.path)
        values = list(zip(*columns, strict=True))
        if self._objects is not None:
            for env_id, env_values in zip(env_ids, values, strict=True):
                self._objects[env_id] = env_values
            return
        tails = [self._encoded(env_values) for env_values in values]
        need_bytes = max(map(len, tails))
        if need_bytes > self._rows.shape.action_bytes:
            raise RowTooSmall(need_bytes)
        for env_id, tail in zip(env_ids, tails, strict=True):
            self._rows.action_tails[env_id].data[: len(tail)] = tail

    def read(self, env_ids: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the values of some envs, one tuple per leaf."""
        decoded = self._decoded if self._objects is None else self._objects.__getitem__
        return list(zip(*[decoded(env_id) for env_id in env_ids], strict=True))

    def _encoded(self, values: Iterable[Any]) -> bytes:
        encoded = [form.encode(value) for form, value in zip(self._forms, values, strict=True)]
        return b"".join(LENGTH.pack(len(part)) + part for part in encoded)

    def _decoded(self, env_id: int) -> list[Any]:
        view, at, values = self._rows.action_tails[env_id].data, 0, []
        for form in self._forms:
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(view, at)[0]
            values.append(form.decode(view[start:at]))
        return values
