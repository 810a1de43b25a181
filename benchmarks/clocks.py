"""Duration of a measurement, and measurement of a rate."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.cases import Case

Work = Callable[[], int]  # does some work and returns how many env steps it was
Opener = Callable[[Case], AbstractContextManager[Work]]
Sample = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """Duration of one measurement."""

    warmup_s: float = 0.3
    measure_s: float = 1.0
    quick: bool = False


FULL = Effort()
QUICK = Effort(warmup_s=0.1, measure_s=0.2, quick=True)


def sample_of(work: Work, effort: Effort) -> Sample:
    """Return env steps per second, and the mean number of busy cores."""
    steps_per_second(work, effort.warmup_s)
    cpu_s, began = _cpu_seconds(), time.perf_counter()
    rate = steps_per_second(work, effort.measure_s)
    cpu_s, wall_s = _cpu_seconds() - cpu_s, time.perf_counter() - began
    return {"value": rate, "cores_used": round(cpu_s / wall_s, 2)}


def steps_per_second(work: Work, seconds: float) -> float:
    """Return the env steps per second of ``work``, over at least ``seconds`` and one call."""
    steps, start = 0, time.perf_counter()
    deadline = start + seconds
    while True:
        steps += work()
        now = time.perf_counter()
        if now >= deadline:
            return steps / (now - start)


def _cpu_seconds() -> float:
    """Return the CPU time so far of this process and its living descendants."""
    caller = psutil.Process()
    times = [process.cpu_times() for process in (caller, *caller.children(recursive=True))]
    return sum(t.user + t.system for t in times)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run ``count`` endless loops."""
    loop = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(loop) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
