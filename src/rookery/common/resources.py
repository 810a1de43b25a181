"""Memory, CPU time, threads and descriptors of processes, and memory that is left."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil

_SAMPLE_S = 5.0  # between two samples of memory, at first
_MOST_SAMPLES = 64  # then every other one is dropped, and samples are taken half as often
_FEWEST_SAMPLES = 6
_SHORTEST_TREND_S = 20.0
_REUSE_S = 0.1  # a measurement younger than this is returned again


@dataclass(frozen=True, kw_only=True)
class ProcessFigures:
    """Resources that a process uses; None if unknown.

    Attributes:
        rss_bytes: resident memory.
        rss_bytes_per_hour: trend of the resident memory; None during the first 20 seconds.
        rss_growth_bytes: certain growth of the resident memory over the period of the trend.
        cpu_percent: use of one core since the last measurement, or since the start of the process.
        threads: number of threads.
        runnable_threads: mean number of threads that were computing or waiting for a core since
            the last measurement; Linux only.
        descriptors: number of open descriptors; on Windows, of handles.
    """

    rss_bytes: int | None = None
    rss_bytes_per_hour: float | None = None
    rss_growth_bytes: float | None = None
    cpu_percent: float | None = None
    threads: int | None = None
    runnable_threads: float | None = None
    descriptors: int | None = None


@dataclass(frozen=True, kw_only=True)
class ProcessUse(ProcessFigures):
    """One measurement of a process.

    Attributes:
        look_s: seconds since the last measurement.
    """

    look_s: float | None = None


NOTHING_KNOWN = ProcessUse()


class Trend:
    """The slope of samples, robust against outliers, with bounded memory.

    At first the interval of samples is ``_SAMPLE_S``. When there are too many, every other sample
    is dropped, so the samples always cover the whole time.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._apart_s = _SAMPLE_S

    def is_due(self, now: float) -> bool:
        """Return True if it is time for another sample."""
        return not self._samples or now - self._samples[-1][0] >= self._apart_s

    def add(self, now: float, value: float) -> None:
        """Add a sample."""
        self._samples.append((now, value))
        if len(self._samples) > _MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._apart_s *= 2

    def slope(self) -> tuple[float, float] | None:
        """Return growth per second and certain growth; None while there are too few samples."""
        return slope_of(self._samples)


def slope_of(samples: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return the median slope of all pairs (Theil, 1950; Sen, 1968), without the warm-up.

    Args:
        samples: time in seconds and value, in order. The first third of the time is ignored,
            because processes grow at their start.

    Returns:
        The slope per second, and the certain growth: the lower or upper quartile of the slopes,
        whichever is nearer to zero, times the duration. None if there are too few samples, or they
        cover less than 20 seconds.
    """
    if len(samples) < _FEWEST_SAMPLES or samples[-1][0] - samples[0][0] < _SHORTEST_TREND_S:
        return None
    times, values = np.array(samples, np.float64).T
    late = times >= times[0] + (times[-1] - times[0]) / 3
    times, values = times[late], values[late]
    first, second = np.triu_indices(len(times), 1)
    if not len(first):
        return None
    slopes = (values[second] - values[first]) / (times[second] - times[first])
    low, middle, high = np.quantile(slopes, (0.25, 0.5, 0.75))
    sure = low if low > 0 else min(float(high), 0.0)
    return float(middle), float(sure * (times[-1] - times[0]))


class UseWatch(Protocol):
    """Measurements of the resources of a worker."""

    def sample(self) -> None:
        """Take a sample of the memory if one is due."""

    def last(self) -> ProcessUse:
        """Return the last measurement."""

    def look(self) -> ProcessUse:
        """Measure now; all values are None after the worker has exited."""

    def rss_bytes(self) -> int | None:
        """Return the present resident memory, or None if unknown."""


class NothingWatched:
    """Measurements of a worker that shares a process: all values are None."""

    def sample(self) -> None:
        """Do nothing."""

    def last(self) -> ProcessUse:
        """Return a measurement without values."""
        return NOTHING_KNOWN

    def look(self) -> ProcessUse:
        """Return a measurement without values."""
        return NOTHING_KNOWN

    def rss_bytes(self) -> int | None:
        """Return None."""
        return None


class ProcessWatch:
    """Measurements of one process of this machine.

    Args:
        pid: id of the process.
    """

    def __init__(self, pid: int) -> None:
        self._trend = Trend()
        self._looked: float | None = None
        self._cpu_s = 0.0
        self._thread_s: dict[str, float] | None = None
        self._last = NOTHING_KNOWN
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.Error:
            self._process = None

    def sample(self) -> None:
        """Take a sample of the memory if one is due."""
        now = time.perf_counter()
        if self._trend.is_due(now):
            rss = self.rss_bytes()
            if rss is not None:
                self._trend.add(now, rss)

    def last(self) -> ProcessUse:
        """Return the last measurement."""
        return self._last

    def rss_bytes(self) -> int | None:
        """Return the present resident memory, or None if the process has exited."""
        if self._process is None:
            return None
        try:
            return int(self._process.memory_info().rss)
        except psutil.Error:
            return None

    def look(self) -> ProcessUse:
        """Measure now; all values are None if the process has exited."""
        now = time.perf_counter()
        if self._process is None:
            return NOTHING_KNOWN
        if self._looked is not None and now - self._looked < _REUSE_S:
            return self._last
        try:
            self._last = self._look(self._process, now)
        except (psutil.Error, OSError):  # it has exited
            return NOTHING_KNOWN
        return self._last

    def _look(self, process: psutil.Process, now: float) -> ProcessUse:
        with process.oneshot():
            rss, threads = process.memory_info().rss, process.num_threads()
            times = process.cpu_times()
            since_start_s = max(time.time() - process.create_time(), 1e-3)
        if self._trend.is_due(now):
            self._trend.add(now, rss)
        look_s = since_start_s if self._looked is None else now - self._looked
        cpu_s = times.user + times.system
        percent = 100.0 * max(cpu_s - self._cpu_s, 0.0) / look_s
        thread_s = _thread_seconds(process.pid)
        runnable = _runnable_threads(self._thread_s, thread_s, look_s)
        self._looked, self._cpu_s, self._thread_s = now, cpu_s, thread_s
        slope = self._trend.slope()
        return ProcessUse(
            rss_bytes=int(rss),
            rss_bytes_per_hour=None if slope is None else slope[0] * 3600,
            rss_growth_bytes=None if slope is None else slope[1],
            cpu_percent=percent,
            threads=int(threads),
            runnable_threads=runnable,
            descriptors=_descriptors(process),
            look_s=look_s,
        )


def _descriptors(process: psutil.Process) -> int | None:
    try:
        if sys.platform == "win32":
            count = process.num_handles()
        else:
            count = process.num_fds()
        return count
    except psutil.Error:
        return None


def _thread_seconds(pid: int) -> dict[str, float] | None:
    """Return the seconds in which each thread computed or waited for a core; None if unknown.

    CPU time alone does not show that a thread waits for a core.
    """
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    seconds = {}
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                computed, waited, _ = file.read().split()
        except (OSError, ValueError):  # the thread has ended, or this kernel does not count
            continue
        seconds[task] = (int(computed) + int(waited)) * 1e-9
    return seconds or None


def _runnable_threads(
    before: dict[str, float] | None, now: dict[str, float] | None, look_s: float
) -> float | None:
    if before is None or now is None:
        return None
    return sum(spent - before.get(task, 0.0) for task, spent in now.items()) / look_s


@dataclass(frozen=True)
class MemoryRoom:
    """Total and available memory.

    Attributes:
        limit_bytes: total memory.
        left_bytes: available memory.
        owner: "this machine" or "this container", for messages.
    """

    limit_bytes: float
    left_bytes: float
    owner: str


def memory_room(root: Path = Path("/sys/fs/cgroup")) -> MemoryRoom:
    """Return the memory left by the container's limit (cgroup v2, then v1) or by the machine."""
    machine = psutil.virtual_memory()
    rooms = [MemoryRoom(float(machine.total), float(machine.available), "this machine")]
    container = _cgroup_room(root / "memory.max", root / "memory.current", root / "memory.stat")
    v1 = root / "memory"
    container = container or _cgroup_room(
        v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat"
    )
    if container is not None and container.limit_bytes < machine.total:
        rooms.append(container)
    return min(rooms, key=lambda room: room.left_bytes)


def _cgroup_room(limit: Path, used: Path, stat: Path) -> MemoryRoom | None:
    most, taken = _number(limit), _number(used)
    if most is None or taken is None:
        return None
    try:
        lines = dict(line.split() for line in stat.read_text().splitlines())
        reclaimable = float(lines.get("inactive_file", 0))  # cached files
    except (OSError, ValueError):
        reclaimable = 0.0
    return MemoryRoom(most, max(most - taken + reclaimable, 0.0), "this container")


def _number(path: Path) -> float | None:
    try:
        value = float(path.read_text())
    except (OSError, ValueError):  # cgroup v2 writes "max" without a limit
        return None
    return value if math.isfinite(value) else None
