"""Bounded histories of the lines that a run writes, from which figures are computed."""

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

_MOST_POINTS = 2000  # of a curve; more than the columns of a terminal


class SoFar(Protocol):
    """A consumer of lines."""

    def add(self, row: Row) -> None:
        """Process the next line."""


class Thinned(Generic[T]):
    """An evenly thinned list of items, which always has the last one.

    Args:
        most: largest number of kept items.
    """

    def __init__(self, most: int = _MOST_POINTS) -> None:
        self._most, self._stride, self._count = most, 1, 0
        self._kept: list[T] = []
        self._last: list[T] = []  # empty if the last item is in _kept

    def add(self, item: T) -> None:
        """Append an item."""
        self._last = [item]
        if self._count % self._stride == 0:
            self._kept.append(item)
            self._last = []
        self._count += 1
        if len(self._kept) > self._most:
            del self._kept[1::2]
            self._stride *= 2

    def items(self) -> list[T]:
        """Return the kept items, in order."""
        return self._kept + self._last


class Recent:
    """The lines of the last minute of training, and the line before them; at least two."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()

    def add(self, row: Row) -> None:
        """Process the next line."""
        rows = self._rows
        rows.append(row)
        end = number_of(row.get("seconds"))
        while len(rows) > 2 and (end is None or _seconds(rows[1]) <= end - RECENT_S):
            rows.popleft()

    def rows(self) -> list[Row]:
        """Return the lines, in order."""
        return list(self._rows)


class MetricsSoFar:
    """A bounded history of metrics.jsonl.

    Attributes:
        recent: the latest lines.
        faults: count of faults by metric.
        evaluations: env step, mean and standard deviation of each evaluation in the metrics.
    """

    def __init__(self) -> None:
        self.recent = Recent()
        self.faults: dict[str, float] = {}
        self.evaluations: list[tuple[int, float, float]] = []
        self._curves: Thinned[Row] = Thinned()

    def add(self, row: Row) -> None:
        """Process the next line."""
        self.recent.add(row)
        self._curves.add(row)
        self.faults = fault_counts([self.faults, row])
        self.evaluations += evaluations_in([row])

    def rows(self) -> list[Row]:
        """Return a thinned list of lines, for curves."""
        return self._curves.items()


class TelemetrySoFar:
    """A bounded history of telemetry.jsonl."""

    def __init__(self) -> None:
        self._recent = Recent()
        self._memory: Thinned[tuple[float, float]] = Thinned()

    def add(self, row: Row) -> None:
        """Process the next line."""
        self._recent.add(row)
        seconds, size = number_of(row.get("seconds")), memory_of(row)
        if seconds is not None and size is not None:
            self._memory.add((seconds, size))

    def figures(self) -> TelemetryFigures | None:
        """Return the figures; None before the first line."""
        points = np.array(self._memory.items(), np.float64).reshape(-1, 2)
        return telemetry_figures(self._recent.rows(), Series(points[:, 0], points[:, 1]))


def telemetry_in(path: Path) -> TelemetryFigures | None:
    """Return the figures of a telemetry.jsonl, which may be larger than memory.

    Returns:
        None if the file does not exist or has no line.

    Raises:
        ConfigError: the file cannot be read.
    """
    so_far = TelemetrySoFar()
    try:
        for row in LineFollower(path).read():
            so_far.add(row)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    return so_far.figures()


class EvaluationsSoFar:
    """The content of evaluations.jsonl.

    Attributes:
        points: env step, mean and standard deviation of each evaluation.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float]] = []

    def add(self, row: Row) -> None:
        """Process the next line."""
        self.points += evaluations_in([row])


def _seconds(row: Row) -> float:
    return number_of(row.get("seconds")) or 0.0
