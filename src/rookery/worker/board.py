"""Board: the shared block of a vector env, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.env.arrays import BatchArrays, BatchSpaces
from rookery.memory import Column, Layout


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
            columns[f"command.{i}"] = columns[f"reply.{i}"] = Column((1,), np.dtype(np.int64))
            columns[f"busy_s.{i}"] = Column((1,), np.dtype(np.float64))
        self._layout = Layout(columns)
        self.size_bytes = self._layout.size_bytes

    def map(self, memory: Any) -> None:
        """Lay the arrays over ``memory``."""
        views = self._layout.views(memory)
        self._views = views
        self.arrays = BatchArrays(self._spaces, views)

    def words(self, index: int) -> tuple[Any, Any, Any]:
        """Command word, reply word (int64) and busy seconds (float64) of a worker."""
        command, reply, busy_s = (
            self._views[f"{name}.{index}"].data for name in ("command", "reply", "busy_s")
        )
        return command, reply, busy_s
