"""Board: the shared blocks of a vector env, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from rookery.env.arrays import BatchArrays, BatchSpaces
from rookery.env.slab import SlabShape
from rookery.memory import Column, Layout, SharedBlock

_WORDS = {
    "command": Column((1,), np.dtype(np.int64)),
    "reply": Column((1,), np.dtype(np.int64)),
    "progress": Column((3,), np.dtype(np.int64)),
    "busy_s": Column((1,), np.dtype(np.float64)),
}


@dataclass(frozen=True)
class Words:
    """What caller and worker tell each other without a pipe; each is a memoryview.

    Attributes:
        command: int64, written by the caller.
        reply: int64, written by the worker.
        progress: three int64: which env the worker is busy with, see :mod:`rookery.env.batch`,
            how many steps its batch has made, and how many letters it has answered.
        busy_s: float64, seconds that the worker spent stepping.
    """

    command: Any
    reply: Any
    progress: Any
    busy_s: Any


class Board:
    """All arrays of a vector env: those of its envs, and one word each way for every worker.

    Args:
        spaces: of the envs.
        num_workers: how many workers there are.

    Attributes:
        arrays: of the envs, once there is memory.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        columns = {name: Column(*column) for name, column in spaces.columns().items()}
        for i in range(num_workers):  # a cache line each: they are written while others are read
            columns.update({f"{name}.{i}": column for name, column in _WORDS.items()})
        self._layout = Layout(columns)
        self._blocks: list[SharedBlock] = []  # all of it, and a larger slab if there is one
        self._slab_shape: SlabShape | None = None

    @classmethod
    def receive(cls, spaces: BatchSpaces, num_workers: int, pipe: Connection) -> Board:
        """The board that the other end of ``pipe`` sends."""
        board = cls(spaces, num_workers)
        board._map(SharedBlock.receive(pipe))
        slab_shape: SlabShape | None = pipe.recv()
        if slab_shape is not None:
            board.receive_slab(pipe, slab_shape)
        return board

    def allocate(self) -> None:
        """Make memory for it."""
        self._blocks = [SharedBlock(self._layout.size_bytes)]
        self._map(self._blocks[0].memory)

    def send(self, pipe: Connection, pid: int) -> None:
        """Give the process ``pid``, at the other end of ``pipe``, access."""
        self._blocks[0].send(pipe, pid)
        pipe.send(self._slab_shape)
        if self._slab_shape is not None:
            self.send_slab(pipe, pid)

    def enlarge_slab(self, shape: SlabShape) -> None:
        """Make a larger slab; everybody else still has the smaller one."""
        for block in self._blocks[1:]:
            block.close()
        layout = self._slab_layout(shape)
        block = SharedBlock(layout.size_bytes)
        self._blocks[1:] = [block]
        self._slab_shape = shape
        self.arrays.slab.enlarge(shape, layout.views(block.memory))

    def send_slab(self, pipe: Connection, pid: int) -> None:
        """Give a process access to the larger slab."""
        self._blocks[1].send(pipe, pid)

    def receive_slab(self, pipe: Connection, shape: SlabShape) -> None:
        """Go on with the slab that the other end of ``pipe`` sends."""
        views = self._slab_layout(shape).views(SharedBlock.receive(pipe))
        self.arrays.slab.bind(shape, views)

    def release(self) -> None:
        """Nobody will be sent anything any more. Arrays stay valid as long as somebody has them."""
        for block in self._blocks:
            block.close()

    def words(self, index: int) -> Words:
        """The words of a worker."""
        return Words(**{name: self._views[f"{name}.{index}"].data for name in _WORDS})

    def _map(self, memory: Any) -> None:
        self._views = self._layout.views(memory)
        self.arrays = BatchArrays(self._spaces, self._views)

    def _slab_layout(self, shape: SlabShape) -> Layout:
        columns = self._spaces.slab_columns(shape)
        return Layout({name: Column(*column) for name, column in columns.items()})
