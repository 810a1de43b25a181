"""What is kept of the lines that a run writes: enough for figures, however long it runs."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np

from rookery.errors import ConfigError
from rookery.report.figures import Series, TelemetryFigures
from rookery.report.run_figures import (
    RECENT_S,
    Row,
    fault_counts,
    memory_of,
    telemetry_figures,
)
from rookery.run.log.evaluation_log import evaluations_in, number_of
from rookery.run.log.jsonl import LineFollower

T = TypeVar("T")

_MOST_POINTS = 2000  # of a curve: more than a terminal has columns


class SoFar(Protocol):
    """Takes in lines, one after the other."""

    def add(self, row: Row) -> None:
        """Take in the next line."""


class Thinned(Generic[T]):
    """Every second, fourth, ... of many items, and the last one.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = _MOST_POINTS) -> None:
        self._most, self._stride, self._count = most, 1, 0
        self._kept: list[T] = []
        self._last: list[T] = []  # unless it is among those that are kept

    def add(self, item: T) -> None:
        """Take in the next item."""
        self._last = [item]
        if self._count % self._stride == 0:
            self._kept.append(item)
            self._last = []
        self._count += 1
        if len(self._kept) > self._most:
            del self._kept[1::2]
            self._stride *= 2

    def items(self) -> list[T]:
        """Those that are kept, in order."""
        return self._kept + self._last


class Recent:
    """The lines of the last minute of training, and the one before them; at least two."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def add(self, row: Row) -> None:
        """Take in the next line."""
        rows = self._rows
        rows.append(row)
        end = number_of(row.get("seconds"))
        while len(rows) > 2 and (end is None or _seconds(rows[1]) <= end - RECENT_S):
            rows.popleft()

    def rows(self) -> list[Row]:
        """The lines, in order."""
        return list(self._rows)


class MetricsSoFar:
    """What metrics have told.

    Attributes:
        recent: the latest lines.
        faults: counts by metric.
        evaluations: env step, mean and standard deviation of those that metrics tell of.
    """

    def __init__(self) -> None:
        self.recent = Recent()
        self.faults: dict[str, float] = {}
        self.evaluations: list[tuple[int, float, float]] = []
        self._curves: Thinned[Row] = Thinned()

    def add(self, row: Row) -> None:
        """Take in the next line."""
        self.recent.add(row)
        self._curves.add(row)
        self.faults = fault_counts([self.faults, row])
        self.evaluations += evaluations_in([row])

    def rows(self) -> list[Row]:
        """Lines for curves, not all of them."""
        return self._curves.items()


class TelemetrySoFar:
    """What telemetry has told."""

    def __init__(self) -> None:
        self._recent = Recent()
        self._memory: Thinned[tuple[float, float]] = Thinned()

    def add(self, row: Row) -> None:
        """Take in the next line."""
        self._recent.add(row)
        seconds, size = number_of(row.get("seconds")), memory_of(row)
        if seconds is not None and size is not None:
            self._memory.add((seconds, size))

    def figures(self) -> TelemetryFigures | None:
        """The figures; None where there is no line."""
        points = np.array(self._memory.items(), np.float64).reshape(-1, 2)
        return telemetry_figures(self._recent.rows(), Series(points[:, 0], points[:, 1]))


def telemetry_in(path: Path) -> TelemetryFigures | None:
    """The figures of a telemetry.jsonl, which may be larger than memory; None if there is none.

    Raises:
        ConfigError: it cannot be read.
    """
    so_far = TelemetrySoFar()
    try:
        for row in LineFollower(path).read():
            so_far.add(row)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return so_far.figures()


class EvaluationsSoFar:
    """What evaluations.jsonl has told.

    Attributes:
        points: env step, mean and standard deviation of each.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float]] = []

    def add(self, row: Row) -> None:
        """Take in the next line."""
        self.points += evaluations_in([row])


def _seconds(row: Row) -> float:
    return number_of(row.get("seconds")) or 0.0
