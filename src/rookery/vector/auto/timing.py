"""Timing of the parts of a step, of copies, and the CPU usage of a process."""

from __future__ import annotations

import math
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.shared.spaces import Leaf, leaves
from rookery.vector.auto.legal_actions import LegalActions
from rookery.vector.base import VectorEnv

if sys.platform != "win32":
    import resource

WARM_UP_STEPS = 5
_REREADINGS = 9
_MOST_COPIED_BYTES = 2**25  # enough to measure copies of a large batch
_LARGE_BATCH_BYTES = 2**20  # smaller ones are copied as fast as a single row


@dataclass(frozen=True)
class Timing:
    """Durations of the parts of a ``step`` call, in seconds. Medians, unless noted otherwise.

    Attributes:
        asking_s: time until the orders are sent.
        least_asking_s: minimum of ``asking_s``; a woken process may take the core of the caller.
        stepping_s: time from the orders until all envs have answered.
        answered_s: mean time from the start of the call until all envs have answered.
        again_s: time of a second wait for envs that have already answered.
        reading_s: time for reading the results.
        rereading_s: time for reading the results again, with warm caches; the cost of one more env.
        busy_s: part of ``stepping_s`` that the batch spends.
        mean_busy_s: mean of ``busy_s``.
        cpu_s: mean CPU time of the calling process per call.
        calls: number of calls, including warm-up.
    """

    asking_s: float
    least_asking_s: float
    stepping_s: float
    answered_s: float
    again_s: float
    reading_s: float
    rereading_s: float
    busy_s: float
    mean_busy_s: float
    cpu_s: float
    calls: int = 1

    @property
    def call_s(self) -> float:
        """Median duration of a whole call."""
        return self.asking_s + self.stepping_s + self.reading_s


@dataclass(frozen=True)
class Usage:
    """CPU usage of a process so far.

    Attributes:
        wall_s: wall-clock time.
        cpu_s: CPU time.
        queued_s: seconds in which it was ready to run without a core; None if unknown.
        waits: number of voluntary context switches; None if unknown.
        losses: number of involuntary context switches; None if unknown.
    """

    wall_s: float
    cpu_s: float
    queued_s: float | None
    waits: int | None
    losses: int | None


def time_steps(venv: VectorEnv, actions: LegalActions, budget_s: float, most: int) -> Timing:
    """Step all envs for ``budget_s`` seconds or ``most`` times, at least once."""
    first: list[tuple[float, ...]] = []
    limit, cpu_before = time.perf_counter() + budget_s, time.process_time()
    while len(first) < WARM_UP_STEPS and (not first or time.perf_counter() < limit):
        first.append(_timed_step(venv, actions))
    timed: list[tuple[float, ...]] = []
    if time.perf_counter() < limit:
        cpu_before = time.process_time()
    while len(timed) < most and time.perf_counter() < limit:
        timed.append(_timed_step(venv, actions))
    cpu_s = time.process_time() - cpu_before
    rereading_s = min(_time_rereading(venv) for _ in range(_REREADINGS))
    asking, stepping, again, reading, busy = zip(*(timed or first), strict=True)
    median, mean = statistics.median, statistics.fmean
    reading_s = max(median(reading) - median(again), 0.0)
    return Timing(
        asking_s=median(asking),
        least_asking_s=min(asking),
        stepping_s=median(stepping),
        answered_s=mean(asking) + mean(stepping),
        again_s=median(again),
        reading_s=reading_s,
        rereading_s=min(rereading_s, reading_s),
        busy_s=median(busy),
        mean_busy_s=mean(busy),
        cpu_s=cpu_s / len(timed or first),
        calls=len(first) + len(timed),
    )


def _time_rereading(venv: VectorEnv) -> float:
    started = time.perf_counter()
    venv._results.step(venv._backends[0].has_told)
    return time.perf_counter() - started


def _timed_step(venv: VectorEnv, actions: LegalActions) -> tuple[float, ...]:
    """Return the seconds of the parts of a step, or of a reset if no legal action is known."""
    clock, backend = time.perf_counter, venv._backends[0]
    action = actions.next()
    call = "reset" if action is None else "step"
    busy_before, t0 = backend.busy_s, clock()
    if action is None:
        venv.reset_async()
    else:
        venv.step_async(action)
    t1 = clock()
    venv._answers.wait_for_all(call, None)
    t2 = clock()
    venv._answers.wait_for_all(call, None)
    t3 = clock()
    results = venv.reset_wait() if action is None else venv.step_wait()
    t4 = clock()
    actions.note(results[0], results[-1])
    return t1 - t0, t2 - t1, t3 - t2, t4 - t3, backend.busy_s - busy_before


def usage_of(env: gym.Env[Any, Any]) -> Usage:
    """Return the CPU usage of the process of an env."""
    waits = losses = None
    if sys.platform != "win32":
        counts = resource.getrusage(resource.RUSAGE_SELF)
        waits, losses = counts.ru_nvcsw, counts.ru_nivcsw
    return Usage(time.perf_counter(), time.process_time(), _queued_s(), waits, losses)


def _queued_s() -> float | None:
    """Return the seconds in which this thread was ready without a core; None if unknown."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def time_copying(num_envs: int, row_bytes: int) -> float:
    """Return the seconds per env for copying a batch beyond the cache size; else 0."""
    if num_envs * row_bytes < _LARGE_BATCH_BYTES:
        return 0.0
    batch = np.ones(min(num_envs * row_bytes, _MOST_COPIED_BYTES), np.uint8)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        batch.copy()
        times.append(time.perf_counter() - started)
    return statistics.median(times) / len(batch) * row_bytes


def row_bytes_of(space: gym.Space[Any]) -> int:
    """Return the bytes of an observation, without parts of variable size."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in leaves(space, "observation")
        if isinstance(leaf, Leaf)
    )
