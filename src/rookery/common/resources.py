"""What a process uses of the machine, looked at now and then; never amid a step."""

from __future__ import annotations

import math
import os
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
_REUSE_S = 0.1  # a look so soon after another tells the same


@dataclass(frozen=True, kw_only=True)
class ProcessFigures:
    """What a process uses; None is what is not known, or not yet.

    Attributes:
        rss_bytes: resident memory.
        rss_bytes_per_hour: its trend; None until a third of a minute was sampled.
        rss_growth_bytes: by how much it has grown over what the trend was taken from, less what
            single samples lie off the line.
        cpu_percent: of one core, since the last look; at the first look since the process began.
        threads: how many there are.
        runnable_threads: how many were computing or waiting for a core, in the mean since the last
            look. Linux tells it.
        descriptors: open ones; handles, on Windows.
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
    """One look at a process.

    Attributes:
        look_s: seconds since the last look.
    """

    look_s: float | None = None


NOTHING_KNOWN = ProcessUse()


class Trend:
    """The slope of some samples, robust against outliers, for as long as a run may be.

    Samples lie ``_SAMPLE_S`` apart at first. When they are too many every other one goes, so that
    those that are kept always reach back to the beginning.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[float, float]] = []
        self._apart_s = _SAMPLE_S

    def is_due(self, now: float) -> bool:
        """Whether it is time for another sample."""
        return not self._samples or now - self._samples[-1][0] >= self._apart_s

    def add(self, now: float, value: float) -> None:
        """Take a sample; it is time for it."""
        self._samples.append((now, value))
        if len(self._samples) > _MOST_SAMPLES:
            self._samples = self._samples[::2]
            self._apart_s *= 2

    def slope(self) -> tuple[float, float] | None:
        """Growth per second, and growth that is sure; None while samples are too few."""
        return slope_of(self._samples)


def slope_of(samples: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """The median of the slopes between all pairs (Theil, 1950; Sen, 1968), without a warm-up.

    Args:
        samples: time in seconds and value, in order. The first third of the time is left out:
            processes grow while they begin.

    Returns:
        The slope per second, and by how much the values have grown for certain: the slope between
        a quarter and three quarters of which pairs lie, whichever is nearer to zero, times the
        time. None where samples are too few, or lie too close.
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
    """Looks at what runs a worker."""

    def sample(self) -> None:
        """Take a sample of the memory, if it is time for one."""

    def last(self) -> ProcessUse:
        """What the last look has told."""

    def look(self) -> ProcessUse:
        """Look now; nothing is known of what has ended."""

    def rss_bytes(self) -> int | None:
        """The resident memory now; None where it is not known."""


class NothingWatched:
    """In place of a watch: what shares a process has no figures of its own."""

    def sample(self) -> None:
        """There is nothing to sample."""

    def last(self) -> ProcessUse:
        """Nothing."""
        return NOTHING_KNOWN

    def look(self) -> ProcessUse:
        """Nothing."""
        return NOTHING_KNOWN

    def rss_bytes(self) -> int | None:
        """Nothing."""
        return None


class ProcessWatch:
    """Looks at one process of this machine.

    Args:
        pid: which.
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
        """Take a sample of the memory, if it is time for one."""
        now = time.perf_counter()
        if self._trend.is_due(now):
            rss = self.rss_bytes()
            if rss is not None:
                self._trend.add(now, rss)

    def last(self) -> ProcessUse:
        """What the last look has told."""
        return self._last

    def rss_bytes(self) -> int | None:
        """The resident memory now; None where the process has ended."""
        return None if self._process is None else _rss(self._process)

    def look(self) -> ProcessUse:
        """Look at the process; None all over where it has ended."""
        now = time.perf_counter()
        if self._process is None:
            return NOTHING_KNOWN
        if self._looked is not None and now - self._looked < _REUSE_S:
            return self._last
        try:
            self._last = self._look(self._process, now)
        except (psutil.Error, OSError):  # it has ended
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


def _rss(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return None


def _descriptors(process: psutil.Process) -> int | None:
    count = getattr(process, "num_fds", None) or getattr(process, "num_handles", None)
    try:
        return None if count is None else int(count())
    except psutil.Error:
        return None


def _thread_seconds(pid: int) -> dict[str, float] | None:
    """Seconds in which each thread computed or waited for a core; None where nobody tells.

    A thread that waits for a core wants to compute, which processor time alone does not show.
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
    """How much memory there is, and how much of it is left.

    Attributes:
        limit_bytes: all of it.
        left_bytes: what may still be taken.
        owner: whose limit it is, for messages.
    """

    limit_bytes: float
    left_bytes: float
    owner: str


def memory_room(root: Path = Path("/sys/fs/cgroup")) -> MemoryRoom:
    """What the container's limit leaves (cgroup v2, then v1), or the machine, if that is less."""
    machine = psutil.virtual_memory()
    rooms = [MemoryRoom(float(machine.total), float(machine.available), "this machine")]
    own = _cgroup_room(root / "memory.max", root / "memory.current", root / "memory.stat")
    v1 = root / "memory"
    own = own or _cgroup_room(
        v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat"
    )
    if own is not None and own.limit_bytes < machine.total:
        rooms.append(own)
    return min(rooms, key=lambda room: room.left_bytes)


def _cgroup_room(limit: Path, used: Path, stat: Path) -> MemoryRoom | None:
    most, taken = _number(limit), _number(used)
    if most is None or taken is None:
        return None
    try:
        lines = dict(line.split() for line in stat.read_text().splitlines())
        given_back = float(lines.get("inactive_file", 0))  # files that were read, and can go
    except (OSError, ValueError):
        given_back = 0.0
    return MemoryRoom(most, max(most - taken + given_back, 0.0), "this container")


def _number(path: Path) -> float | None:
    try:
        value = float(path.read_text())
    except (OSError, ValueError):  # cgroup v2 says "max" where there is no limit
        return None
    return value if math.isfinite(value) else None
