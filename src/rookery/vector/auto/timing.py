"""What steps of a vector env cost, what a process has used, and what copying costs."""

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
_MOST_COPIED_BYTES = 2**25  # enough to see what copying a large batch costs
_LARGE_BATCH_BYTES = 2**20  # smaller ones are copied as fast as the one row that is measured


@dataclass(frozen=True)
class Timing:
    """What calls of ``step`` cost, in seconds per call; medians, if nothing else is said.

    Attributes:
        asking_s: until the envs were asked.
        least_asking_s: the same, the least: whoever is woken may take the core from who wakes him.
        stepping_s: from then on, until all had answered.
        answered_s: from the beginning until all had answered; the mean.
        again_s: a second look at envs that have answered.
        reading_s: for making the results.
        rereading_s: for making the same results again: what one more env in a row costs, while one
            alone is read with whatever has left the caches in between.
        busy_s: of ``stepping_s``, in the batch.
        mean_busy_s: the same, the mean.
        cpu_s: computing of the calling process, with all that it does between calls; the mean.
        calls: how many were made, those included that were not timed.
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
        """A whole call, median."""
        return self.asking_s + self.stepping_s + self.reading_s


@dataclass(frozen=True)
class Usage:
    """How a process has spent its time so far.

    Attributes:
        wall_s: a clock.
        cpu_s: seconds of computing.
        queued_s: seconds in which it was ready and had no core; None if the system does not say.
        waits: how often it gave up its core by itself; None if the system does not say.
        losses: how often its core was taken from it; None if the system does not say.
    """

    wall_s: float
    cpu_s: float
    queued_s: float | None
    waits: int | None
    losses: int | None


def time_steps(venv: VectorEnv, actions: LegalActions, budget_s: float, most: int) -> Timing:
    """Step all envs until a time is over, or as often as is said, and once at least."""
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
    """Seconds for the parts of a step, or of a reset where no action is known to be legal."""
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
    """What the process of an env has used."""
    waits = losses = None
    if sys.platform != "win32":
        counts = resource.getrusage(resource.RUSAGE_SELF)
        waits, losses = counts.ru_nvcsw, counts.ru_nivcsw
    return Usage(time.perf_counter(), time.process_time(), _queued_s(), waits, losses)


def _queued_s() -> float | None:
    """Seconds that this thread was ready to run and had no core; None if the system won't say."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def time_copying(num_envs: int, row_bytes: int) -> float:
    """Seconds per env for copying a batch that caches do not hold; 0 for a smaller one."""
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
    """Bytes of an observation, without what has no fixed size."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in leaves(space, "observation")
        if isinstance(leaf, Leaf)
    )
