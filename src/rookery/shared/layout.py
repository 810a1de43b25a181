"""From named columns to offsets in one piece of memory; pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

CACHE_LINE_BYTES = 64  # columns start on their own line, so that two writers never share one


@dataclass(frozen=True)
class Column:
    """One array: its shape and its dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size_bytes(self) -> int:
        """Bytes that the array's elements take."""
        return math.prod(self.shape) * self.dtype.itemsize


class Layout:
    """Where each column of a block lies.

    Args:
        columns: name -> column; the order is the order in memory.

    Attributes:
        columns: as given.
        offsets: name -> first byte of the column, a multiple of 64.
        size_bytes: what the whole block needs, at least one byte.
    """

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self.columns = dict(columns)
        self.offsets: dict[str, int] = {}
        end = 0
        for name, column in self.columns.items():
            self.offsets[name] = end
            end += -(-column.size_bytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        self.size_bytes = max(end, 1)

    def views(self, buffer: Any) -> dict[str, npt.NDArray[Any]]:
        """Arrays over ``buffer`` (any object with the buffer protocol), one per column."""
        return {
            name: np.frombuffer(
                buffer,
                dtype=column.dtype,
                count=math.prod(column.shape),
                offset=self.offsets[name] if column.size_bytes else 0,
            ).reshape(column.shape)
            for name, column in self.columns.items()
        }
