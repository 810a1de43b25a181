"""Timing of steps, of copies, and of the use of a process."""

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
_MOST_COPIED_BYTES = 2**25  # enough to measure the cost of copying a large batch
_LARGE_BATCH_BYTES = 2**20  # smaller batches fit into caches, like the measured row


@dataclass(frozen=True)
class Timing:
    """The cost of calls of ``step``, in seconds per call.

    Attributes:
        asking_s: median time to send the order.
        least_asking_s: minimum time to send the order; a worker that wakes up may preempt the
            caller, which makes other calls longer.
        stepping_s: median time from the order to the last answer.
        answered_s: mean time from the start of the call to the last answer.
        again_s: median time of a second wait for envs that have answered already.
        reading_s: median time to create the results.
        rereading_s: minimum time to create the same results again, with warm caches.
        busy_s: median time in the batch, a part of ``stepping_s``.
        mean_busy_s: mean time in the batch.
        cpu_s: mean CPU time of the calling process, including the time between calls.
        calls: number of calls, including those that were not timed.
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
        """Median time of a whole call."""
        return self.asking_s + self.stepping_s + self.reading_s


@dataclass(frozen=True)
class Usage:
    """The time that a process has used so far.

    Attributes:
        wall_s: value of a clock, in seconds.
        cpu_s: CPU seconds.
        queued_s: seconds in which it was ready to run and had no core; None if the system does not
            report this.
        waits: number of voluntary context switches; None if the system does not report this.
        losses: number of involuntary context switches; None if the system does not report this.
    """

    wall_s: float
    cpu_s: float
    queued_s: float | None
    waits: int | None
    losses: int | None


def time_steps(venv: VectorEnv, actions: LegalActions, budget_s: float, most: int) -> Timing:
    """Step all envs for ``budget_s`` seconds or ``most`` times, but at least once."""
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
    venv._results.step(venv._backends[0].has_extras)
    return time.perf_counter() - started


def _timed_step(venv: VectorEnv, actions: LegalActions) -> tuple[float, ...]:
    """Return the seconds of the parts of a step, or of a reset if no legal action is known."""
    clock = time.perf_counter
    action = actions.next()
    call = "reset" if action is None else "step"
    busy_before, t0 = venv.busy_s[0], clock()
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
    return t1 - t0, t2 - t1, t3 - t2, t4 - t3, venv.busy_s[0] - busy_before


def usage_of(env: gym.Env[Any, Any]) -> Usage:
    """Return the time that the process of an env has used."""
    waits = losses = None
    if sys.platform != "win32":
        counts = resource.getrusage(resource.RUSAGE_SELF)
        waits, losses = counts.ru_nvcsw, counts.ru_nivcsw
    return Usage(time.perf_counter(), time.process_time(), _queued_s(), waits, losses)


def _queued_s() -> float | None:
    """Return the seconds in which this thread was ready to run and had no core, if known."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def time_copying(num_envs: int, row_bytes: int) -> float:
    """Return the seconds per env for copying a batch larger than the caches; 0 if smaller."""
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
