"""Board: the shared block of a vector env, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.env.arrays import BatchArrays, BatchSpaces
from rookery.memory import Column, Layout

_WORDS = {
    "command": Column((1,), np.dtype(np.int64)),
    "reply": Column((1,), np.dtype(np.int64)),
    "progress": Column((2,), np.dtype(np.int64)),
    "busy_s": Column((1,), np.dtype(np.float64)),
}


@dataclass(frozen=True)
class Words:
    """What caller and worker tell each other without a pipe; each is a memoryview.

    Attributes:
        command: int64, written by the caller.
        reply: int64, written by the worker.
        progress: two int64: which env the worker is busy with, see :mod:`rookery.env.batch`, and
            how many steps its batch has made.
        busy_s: float64, seconds that the worker spent stepping.
    """

    command: Any
    reply: Any
    progress: Any
    busy_s: Any


class Board:
    """All arrays of a block: those of the envs, and one word each way for every worker.

    Args:
        spaces: of the envs.
        num_workers: how many workers there are.

    Attributes:
        size_bytes: of the block to allocate.
    """

    def __init__(self, spaces: BatchSpaces, num_workers: int) -> None:
        self._spaces = spaces
        columns = {name: Column(*column) for name, column in spaces.columns().items()}
        for i in range(num_workers):  # a cache line each: they are written while others are read
            columns.update({f"{name}.{i}": column for name, column in _WORDS.items()})
        self._layout = Layout(columns)
        self.size_bytes = self._layout.size_bytes

    def map(self, memory: Any) -> None:
        """Lay the arrays over ``memory``."""
        views = self._layout.views(memory)
        self._views = views
        self.arrays = BatchArrays(self._spaces, views)

    def words(self, index: int) -> Words:
        """The words of a worker."""
        return Words(**{name: self._views[f"{name}.{index}"].data for name in _WORDS})
