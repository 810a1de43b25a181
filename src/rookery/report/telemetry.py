"""Statistics of envs and processes, computed from the lines of telemetry."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from rookery.errors import ConfigError
from rookery.report.figures import Floats, Row, Series
from rookery.run.log.jsonl import LineFollower, number_of

T = TypeVar("T")

_RECENT_S = 60.0  # seconds of training over which current speeds and times are taken
_MOST_POINTS = 2000  # of a curve; more than the columns of a terminal


@dataclass(frozen=True)
class EnvFigures:
    """Statistics of each env, as float64 arrays ``[N]``; NaN for unknown values.

    Attributes:
        worker: index of the worker that runs the env.
        steps: number of env steps.
        episodes: number of ended episodes.
        step_mean_s: mean time of a step, in seconds.
        step_p50_s: median time of a step, in seconds.
        step_p99_s: 99th percentile of the time of a step, in seconds.
        reset_mean_s: mean time of a reset, in seconds.
        reset_p99_s: 99th percentile of the time of a reset, in seconds.
        wait_s: seconds during which the worker waited for an action of the env.
        straggler_share: share of the vector steps in which this env was the last to finish.
    """

    worker: Floats
    steps: Floats
    episodes: Floats
    step_mean_s: Floats
    step_p50_s: Floats
    step_p99_s: Floats
    reset_mean_s: Floats
    reset_p99_s: Floats
    wait_s: Floats
    straggler_share: Floats

    def slowest(self, most: int) -> list[int]:
        """Return the indices of the envs with the longest mean step times, longest first."""
        order = np.argsort(-np.nan_to_num(self.step_mean_s, nan=-1.0), kind="stable")
        return [int(place) for place in order[:most]]


@dataclass(frozen=True)
class ProcessSeries:
    """Statistics of a process of a run; NaN for unknown values.

    Attributes:
        name: name of the process, such as ``worker 2``.
        envs: indices of its envs, as text.
        busy_share: share of the time during which the process stepped envs.
        cpu_percent: CPU load, in percent of one core.
        rss_bytes: resident memory.
        rss_bytes_per_hour: growth of the resident memory.
        threads: number of threads.
        descriptors: number of open file descriptors.
        restarts: number of times that the worker was replaced.
        restart_causes: reason of each replacement, as text.
        in_caller: True if the envs run in the caller's process instead of a worker process.
    """

    name: str
    envs: str
    busy_share: float
    cpu_percent: float
    rss_bytes: float
    rss_bytes_per_hour: float
    threads: float
    descriptors: float
    restarts: int
    restart_causes: Sequence[str]
    in_caller: bool = False


@dataclass(frozen=True)
class TelemetryFigures:
    """Statistics from telemetry.jsonl.

    Attributes:
        envs: statistics of the envs in the last line; None if the line has none.
        processes: the workers, then the caller.
        memory: total bytes of all processes, over seconds of training.
        memory_per_hour: growth of the total memory, in bytes; NaN if unknown.
        balance: busy time of the busiest worker, divided by the mean of all workers. 1 is even;
            NaN if unknown.
    """

    envs: EnvFigures | None
    processes: Sequence[ProcessSeries]
    memory: Series
    memory_per_hour: float
    balance: float


def telemetry_figures(rows: Iterable[Row]) -> TelemetryFigures | None:
    """Return the figures in all lines of a telemetry.jsonl; None without lines."""
    so_far = TelemetrySoFar()
    for row in rows:
        so_far.add(row)
    return so_far.figures()


def telemetry_in(path: Path) -> TelemetryFigures | None:
    """Return the figures of a telemetry.jsonl, which may be larger than memory.

    Returns:
        None if the file does not exist or has no line.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return telemetry_figures(LineFollower(path).read())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


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
        while len(rows) > 2 and (end is None or _seconds(rows[1]) <= end - _RECENT_S):
            rows.popleft()

    def rows(self) -> list[Row]:
        """Return the lines, in order."""
        return list(self._rows)


def _seconds(row: Row) -> float:
    return number_of(row.get("seconds")) or 0.0


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
        return _figures(self._recent.rows(), Series(points[:, 0], points[:, 1]))


def _figures(rows: Sequence[Row], memory: Series) -> TelemetryFigures | None:
    """Return the figures in the latest lines of telemetry; None without lines.

    Missing or invalid values are treated as unknown.
    """
    if not rows:
        return None
    last = rows[-1]
    earlier = rows[0] if len(rows) > 1 else None
    workers = _processes(last.get("workers"))
    before = _processes(earlier.get("workers")) if earlier is not None else []
    span = _number(last, "seconds") - (_number(earlier, "seconds") if earlier is not None else 0.0)
    processes = [_worker(i, each, before, span) for i, each in enumerate(workers)]
    busy = np.array([process.busy_share for process in processes], np.float64)
    is_known = len(busy) > 1 and bool(np.isfinite(busy).all()) and busy.mean() > 0
    caller = last.get("caller")
    if isinstance(caller, dict):
        processes.append(_process("caller", "", float("nan"), caller))
    growth = np.array([e.rss_bytes_per_hour for e in processes if not e.in_caller], np.float64)
    return TelemetryFigures(
        envs=_envs(last.get("envs")),
        processes=processes,
        memory=memory,
        memory_per_hour=float(growth.sum()) if len(growth) else float("nan"),
        balance=float(busy.max() / busy.mean()) if is_known else float("nan"),
    )


def _worker(place: int, now: Row, before: Sequence[Row], span_s: float) -> ProcessSeries:
    """Return the figures of a worker; its busy share is that of the last ``span_s`` seconds."""
    busy = _number(now, "busy_s")
    was = _number(before[place], "busy_s") if place < len(before) else 0.0
    spent = busy - was if busy >= was else busy  # the counter restarts with the process
    share = min(spent / span_s, 1.0) if span_s > 0 else float("nan")
    node = now.get("node")  # on a cluster
    name = f"worker {place} on {node}" if isinstance(node, str) else f"worker {place}"
    return _process(name, _env_ids(now.get("env_ids")), share, now)


def _env_ids(value: Any) -> str:
    """Return the range of a worker's envs as text; empty if unknown."""
    ids = _floats(value)
    if len(ids) != 2 or np.isnan(ids).any():
        return ""
    first, last = ids.astype(np.int64).tolist()
    return f"{first}–{last}" if last > first else str(first)


def _process(name: str, envs: str, busy_share: float, row: Row) -> ProcessSeries:
    causes = row.get("restart_causes")
    restarts = number_of(row.get("restarts"))
    return ProcessSeries(
        name=name,
        envs=envs,
        busy_share=busy_share,
        **{
            key: _number(row, key)
            for key in ("cpu_percent", "rss_bytes", "rss_bytes_per_hour", "threads", "descriptors")
        },
        restarts=int(restarts or 0),
        restart_causes=[_cause(each) for each in causes] if isinstance(causes, list) else [],
        in_caller=row.get("in_caller") is True,
    )


def _cause(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _envs(value: Any) -> EnvFigures | None:
    if not isinstance(value, dict):
        return None
    columns = {name: _floats(value.get(name)) for name in EnvFigures.__dataclass_fields__}
    count = max(map(len, columns.values()))
    if not count:
        return None
    return EnvFigures(**{name: _padded(column, count) for name, column in columns.items()})


def memory_of(row: Row) -> float | None:
    """Return the total bytes of all processes; None if unknown."""
    workers = [each for each in _processes(row.get("workers")) if not each.get("in_caller")]
    known = [
        size
        for each in [*workers, *_processes([row.get("caller")])]
        if (size := number_of(each.get("rss_bytes"))) is not None
    ]
    return sum(known) if known else None


def _processes(value: Any) -> list[Row]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _floats(value: Any) -> Floats:
    numbers = map(number_of, value) if isinstance(value, list) else ()
    return np.array([float("nan") if x is None else x for x in numbers], np.float64)


def _padded(column: Floats, count: int) -> Floats:
    return np.append(column, np.full(count - len(column), np.nan))


def _number(row: Row, name: str) -> float:
    number = number_of(row.get(name))
    return float("nan") if number is None else number
