"""Slab: rows of bytes in which everything travels that has no column of its own.

Each env has a row for each buffer. A row has a fixed part, where the numbers of an info lie, see
:mod:`rookery.shared.infos`, and a tail, which holds the free values of an observation, see
:mod:`rookery.shared.freeform`, and after them pickles of the infos that are loose. Both parts grow:
a tail that does not fit goes as a message, and the caller makes a larger slab before it asks for
anything else, unless the rows of all envs would become too large together: what is that large and
comes but now and then is not worth memory that stays. So does a form of infos that is too large.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.shared.infos import Info, InfoForm

Array = npt.NDArray[Any]
Column = tuple[tuple[int, ...], np.dtype[Any]]

IN_MESSAGE = -1  # in place of a tail's length: it did not fit
UNCHANGED = -2  # in place of a tail's length: the free values are those that were read last

_FREE_BYTES = 2**24  # a slab grows to this size whenever something does not fit
_OFTEN = 8  # so often something must have been too large before it grows further
_MOST_BYTES = 2**27  # and never beyond this

LENGTH = struct.Struct("<q")  # before each free value


@dataclass(frozen=True)
class SlabShape:
    """How large the parts of a row are, in bytes."""

    fixed_bytes: int = 256
    tail_bytes: int = 512
    action_bytes: int = 64

    def columns(self, num_envs: int, num_buffers: int) -> dict[str, Column]:
        """Name -> (shape, dtype) of the arrays of a slab."""
        word, byte = np.dtype(np.int64), np.dtype(np.uint8)
        columns: dict[str, Column] = {}
        for b in range(num_buffers):
            columns[f"form{b}"] = columns[f"tail_used{b}"] = ((num_envs,), word)
            columns[f"loose{b}"] = ((num_envs,), word)
            columns[f"fixed{b}"] = ((num_envs, self.fixed_bytes), byte)
            columns[f"tail{b}"] = ((num_envs, self.tail_bytes), byte)
        columns["action_tail"] = ((num_envs, self.action_bytes), byte)
        return columns

    def grown(self, fixed_bytes: int, tail_bytes: int, action_bytes: int = 0) -> SlabShape:
        """A shape with room for this, and for twice as much where it had too little."""
        return SlabShape(
            _grown(self.fixed_bytes, fixed_bytes),
            _grown(self.tail_bytes, tail_bytes),
            _grown(self.action_bytes, action_bytes),
        )


def _grown(have: int, need: int) -> int:
    while have < need:
        have *= 2
    return have


@dataclass(frozen=True)
class News:
    """What a batch tells beside what lies in the slab.

    Attributes:
        forms: of infos, that are used from now on.
        tails: env id and tail, where it did not fit.
    """

    forms: tuple[InfoForm, ...] = ()
    tails: tuple[tuple[int, bytes], ...] = ()


SEE_SLAB = News()  # nothing but that there is something in the slab


class SlabFull(Exception):
    """The tails are too short for some actions. Never reaches a user.

    Attributes:
        need_bytes: what they need.
    """

    def __init__(self, need_bytes: int) -> None:
        super().__init__(need_bytes)
        self.need_bytes = need_bytes


class Slab:
    """The arrays of a slab; larger ones may take their place.

    Attributes:
        shape: of the rows.
        forms: per buffer, int64 ``[n]``: ids of the forms of infos in the fixed parts, 0 for none.
        tail_used: per buffer, int64 ``[n]``: bytes in the tails.
        loose: per buffer, int64 ``[n]``: how many of them are of loose infos.
        fixed: per buffer, uint8 ``[n, fixed_bytes]``.
        tails: per buffer, uint8 ``[n, tail_bytes]``.
        action_tails: uint8 ``[n, action_bytes]``, the free values of actions.
        added: per buffer, by env id, infos that come before those in the row: objects of this
            process, which nobody else sees.
    """

    def __init__(self, num_buffers: int, shape: SlabShape, views: Mapping[str, Any]) -> None:
        self._num_buffers = num_buffers
        self.added: list[dict[int, list[Info]]] = [{} for _ in range(num_buffers)]
        self.bind(shape, views)

    def enlarge(self, shape: SlabShape, views: Mapping[str, Any]) -> None:
        """Go on with larger arrays, to which all rows are copied."""
        before = self._arrays()
        self.bind(shape, views)
        for new, old in zip(self._arrays(), before, strict=True):
            new[..., : old.shape[-1]] = old

    def may_grow(self, shape: SlabShape, num_envs: int, overflows: int) -> bool:
        """Whether a larger slab is worth its memory.

        Args:
            shape: of the larger one.
            num_envs: how many rows it has in each buffer.
            overflows: how often something did not fit so far.
        """
        per_env = self._num_buffers * (shape.fixed_bytes + shape.tail_bytes) + shape.action_bytes
        size_bytes = num_envs * per_env
        return size_bytes <= _FREE_BYTES or (overflows >= _OFTEN and size_bytes <= _MOST_BYTES)

    def bind(self, shape: SlabShape, views: Mapping[str, Any]) -> None:
        """Go on with other arrays, one for each of ``shape.columns()``."""
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
        """Drop what was added for some envs to an earlier result in the same buffer."""
        added = self.added[buffer]
        if added:
            for env_id in env_ids:
                added.pop(env_id, None)

    def void_rows(self, env_ids: Any, buffer: int) -> None:
        """Say that some envs have no info, and that their free values are those read last."""
        ids = list(env_ids)
        self.forms[buffer][ids] = self.loose[buffer][ids] = 0
        self.tail_used[buffer][ids] = UNCHANGED
