"""The probe: step one throwaway env in a worker for a moment, and say what it and the talking cost.

The env is built in a worker, and never used for anything else. There it is stepped twice: from
here, as a worker's envs are, and by a serial vector env in the worker itself. Envs that only return
what it has returned show what a call costs, and what each env more. All of it happens beside
whatever else the machine does, and none of it for long: each part stops when its time is over.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import psutil
from gymnasium.vector import AutoresetMode

from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.env.spaces import Leaf, leaves, rows
from rookery.errors import RookeryError
from rookery.vector.base import VectorEnv
from rookery.vector.cpus import CpuUsage
from rookery.vector.legal import LegalActions
from rookery.vector.plans import Measurement
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.serial import SerialVectorEnv
from rookery.worker.faults import FaultPolicy

if sys.platform != "win32":
    import resource

# How long the parts may take; a step that takes longer is still made, once.
_IN_WORKER_S, _SERIALLY_S, _REPLAY_S = 0.08, 0.05, 0.015
_MOST_STEPS = 1000
_WARM_UP_STEPS = 5
_REPLAY_STEPS, MANY = 200, 9
_REREADINGS = 9
_MOST_COPIED_BYTES = 2**25  # enough to see what copying a large batch costs
_LARGE_BATCH_BYTES = 2**20  # smaller ones are copied as fast as the one row that is measured

Sample: TypeAlias = "tuple[Any, dict[str, Any]]"  # an observation and infos

_BUSY = 0.9  # of a core; who gets less has not been alone

# The probe's own deadlines, far beyond its time: whoever passes them hangs, or may as well.
_DEADLINES = FaultPolicy(step_timeout_s=10.0, reset_timeout_s=30.0, make_timeout_s=120.0)
_ANSWER_TIMEOUT_S = 40.0


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


@dataclass(frozen=True)
class SerialReport:
    """What a worker tells of serial vector envs in it.

    The first four are of envs that do nothing but return what the measured env has returned: of one
    of them and of ``MANY``, with results as for this process and as for another.

    Attributes:
        here_one: see above, as all that follow.
        here_many: ...
        there_one: ...
        there_many: ...
        own: of the env that is measured; None if its steps take too long for it to matter.
        before: the worker's usage before ``own``.
        after: the worker's usage after it.
    """

    here_one: Timing
    here_many: Timing
    there_one: Timing
    there_many: Timing
    own: Timing | None
    before: Usage
    after: Usage


def measure(
    recipe: EnvRecipe,
    num_envs: int,
    copy: bool,
    start_method: str | None,
    threads_per_worker: int | None,
) -> Measurement:
    """Measure one env of a kind, for about 0.2 s beside the start of a worker.

    Args:
        recipe: of the env.
        num_envs: how many there are going to be.
        copy: whether results are to be copied.
        start_method: for the worker.
        threads_per_worker: for the worker.

    Raises:
        RookeryError: when it cannot be: the env cannot travel, raises, hangs or dies.
    """
    venv = ProcessVectorEnv(
        [recipe],
        num_workers=1,
        copy=copy,
        start_method=start_method,
        threads_per_worker=threads_per_worker,
        faults=_DEADLINES,
    )
    try:
        cpus_before = CpuUsage.now(venv.pids[0])
        started = time.perf_counter()
        actions = LegalActions(venv)
        is_slow = time.perf_counter() - started > _SERIALLY_S
        first = before = _ask_worker(venv, _usage_of)
        timing = time_steps(venv, actions, _IN_WORKER_S, _MOST_STEPS)
        after = _ask_worker(venv, _usage_of)
        is_slow = is_slow or timing.busy_s > _SERIALLY_S / 4
        report = _ask_worker(venv, partial(report_serially, copy=copy, steps_env=not is_slow))
        if is_slow:
            report = replace(report, before=before, after=after)
        core_back_s = waited_for_core(first, _ask_worker(venv, _usage_of), report)
        left_share = CpuUsage.now(venv.pids[0]).left_since(cpus_before)
        memory_bytes = psutil.Process(venv.pids[0]).memory_info().rss
    except BaseException:
        _abandon(venv)
        raise
    with suppress(RookeryError):  # all that was to be known is known
        venv.close()
    row_bytes = _row_bytes(venv.single_observation_space)
    copying_s = time_copying(num_envs, row_bytes) if copy else 0.0
    measured = combine(timing, report, copying_s, memory_bytes, actions.are_unknown, left_share)
    return replace(measured, core_back_s=core_back_s)


def _abandon(venv: ProcessVectorEnv) -> None:
    """End the worker at once: its env has raised or hangs, and is not to be waited for."""
    venv._pending.was_cut_short = True
    with suppress(RookeryError):
        venv.close(terminate=True)


def _ask_worker(venv: ProcessVectorEnv, function: Callable[[Any], Any]) -> Any:
    """``function(env)``, called in the worker, which has its time for that."""
    venv._request("apply", [(function, [0])])
    ((_, answer),) = venv._outcomes("apply", _ANSWER_TIMEOUT_S)[0]
    return answer


# ---------------------------------------------------------------- what follows from it


def combine(
    timing: Timing,
    report: SerialReport,
    copying_s: float,
    memory_bytes: int = 0,
    is_of_resets: bool = False,
    left_share: float = 1.0,
) -> Measurement:
    """What follows from all timings.

    Args:
        timing: of the env in a worker, as its caller saw it.
        report: of serial vector envs.
        copying_s: what copying the row of one env costs at least, in a batch of all.
        memory_bytes: of the worker.
        is_of_resets: whether resets stood for steps.
        left_share: of a core, what other processes leave, seen over all the time of measuring: in a
            part of it they may happen to be silent.
    """
    here, own = report.here_one, report.own
    serial_s = _slope("call_s", here, report.here_many)  # all but the env's own step
    writing_s = _slope("stepping_s", report.there_one, report.there_many)
    reading_s = _slope("rereading_s", report.there_one, report.there_many)
    calls = timing.calls if own is None else own.calls
    waiting_s, core_share = spent(report.before, report.after, calls)
    if own is None:
        env_s = max(timing.mean_busy_s - waiting_s, 0.0) * core_share
    else:
        if core_share < _BUSY:  # others make means of a few steps a matter of chance
            waiting_s = min(waiting_s, max(own.call_s - own.cpu_s, 0.0))
        # CPU seconds are the same however busy the machine is, but of cheap steps a small
        # difference of large numbers; what most steps take is the other witness.
        most_s = max(own.stepping_s - here.stepping_s - waiting_s, 0.0) * core_share
        env_s = max(own.cpu_s - here.cpu_s, most_s)
    # What alone comes back to a core that has done something else costs more than one of many.
    alone_s = max(timing.reading_s - report.there_one.rereading_s, 0.0)
    if own is not None:
        alone_s += max(timing.busy_s - own.busy_s - max(writing_s - serial_s, 0.0), 0.0)
    ringing_s = max(timing.least_asking_s - here.least_asking_s, 0.0)
    talking_s = max(timing.answered_s - timing.mean_busy_s - here.asking_s - ringing_s, 0.0)
    return Measurement(
        env_s=env_s + max(serial_s, writing_s + copying_s if copying_s else 0.0),
        worker_env_s=env_s + writing_s,
        waiting_s=waiting_s,
        reading_s=max(reading_s, copying_s),
        call_s=max(here.call_s - serial_s, 0.0),
        worker_s=ringing_s + timing.again_s,
        round_trip_s=talking_s + alone_s,
        core_share=min(core_share, left_share),
        memory_bytes=memory_bytes,
        is_of_resets=is_of_resets,
    )


def _slope(name: str, one: Timing, many: Timing) -> float:
    """What one more env costs."""
    return float(max(getattr(many, name) - getattr(one, name), 0.0) / (MANY - 1))


def spent(before: Usage, after: Usage, calls: int) -> tuple[float, float]:
    """Seconds per call in which a process waited, and the share of a core it got otherwise.

    A process that neither computes nor is ready waits, if the system says when it was ready. And it
    waits only if it gave up its core by itself about once in each call, as an env that waits must;
    if not, others had the core, or the host of a virtual machine.
    """
    wall_s, cpu_s = after.wall_s - before.wall_s, after.cpu_s - before.cpu_s
    waited_s = max(wall_s - cpu_s, 0.0)
    if before.queued_s is not None and after.queued_s is not None:
        waited_s = max(waited_s - (after.queued_s - before.queued_s), 0.0)
    if before.waits is not None and after.waits is not None:
        waited_s = waited_s if 2 * (after.waits - before.waits) >= calls else 0.0
    active_s = wall_s - waited_s
    share = min(cpu_s / active_s, 1.0) if active_s > 0 and cpu_s > 0 else 1.0
    return waited_s / calls, share


def waited_for_core(first: Usage, last: Usage, report: SerialReport) -> float:
    """Seconds, on average, until a process has a core again that others have taken from it.

    Over all the time of measuring, for in a part of it others may happen to be silent. A system
    that does not say how long a process was ready leaves the part in which it only stepped.
    """
    if first.queued_s is not None and last.queued_s is not None:
        before, after, waited_s = first, last, last.queued_s - first.queued_s
    else:
        before, after = report.before, report.after
        waited_s = max(after.wall_s - before.wall_s - (after.cpu_s - before.cpu_s), 0.0)
    if before.losses is None or after.losses is None:
        return waited_s
    return waited_s / max(after.losses - before.losses, 1)


# ---------------------------------------------------------------- on both sides


def time_steps(venv: VectorEnv, actions: LegalActions, budget_s: float, most: int) -> Timing:
    """Step all envs until a time is over, or as often as is said, and once at least."""
    first: list[tuple[float, ...]] = []
    limit, cpu_before = time.perf_counter() + budget_s, time.process_time()
    while len(first) < _WARM_UP_STEPS and (not first or time.perf_counter() < limit):
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
    venv._results.step(venv._carriers[0].has_told)
    return time.perf_counter() - started


def _timed_step(venv: VectorEnv, actions: LegalActions) -> tuple[float, ...]:
    """Seconds for the parts of a step, or of a reset where no action is known to be legal."""
    clock, carrier = time.perf_counter, venv._carriers[0]
    action = actions.next()
    call = "reset" if action is None else "step"
    busy_before, t0 = carrier.busy_s, clock()
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
    return t1 - t0, t2 - t1, t3 - t2, t4 - t3, carrier.busy_s - busy_before


# ---------------------------------------------------------------- in the worker


def report_serially(env: gym.Env[Any, Any], copy: bool, steps_env: bool) -> SerialReport:
    """Time serial vector envs: of ``env``, if that is wanted, and of some that do nothing."""
    samples: list[Sample] = [(env.observation_space.sample(), {})]
    before = after = _usage_of(env)
    own = None
    if steps_env:
        batch = EnvBatch([EnvRecipe(lambda: env)], 0)
        venv = SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy)
        try:
            actions = LegalActions(venv)
            samples = _samples(venv, actions)
            before = _usage_of(env)
            own = time_steps(venv, actions, _SERIALLY_S, _MOST_STEPS)
            after = _usage_of(env)
        finally:
            batch.envs.clear()  # it is not theirs to close
            venv.close()
    recipe = EnvRecipe(lambda: _Replay(env, samples))
    return SerialReport(
        here_one=_time_replay([recipe], copy, travels=False),
        here_many=_time_replay([recipe] * MANY, copy, travels=False),
        there_one=_time_replay([recipe], copy, travels=True),
        there_many=_time_replay([recipe] * MANY, copy, travels=True),
        own=own,
        before=before,
        after=after,
    )


def _samples(venv: SerialVectorEnv, actions: LegalActions) -> list[Sample]:
    """Some observations and infos of the one env."""
    samples: list[Sample] = []
    venv.infos_per_env = not actions.are_masked  # masks are found in the other form
    for _ in range(_WARM_UP_STEPS):
        action = actions.next()
        results: tuple[Any, ...] = venv.reset() if action is None else venv.step(action)
        (obs,) = rows(venv.single_observation_space, results[0])
        samples.append((obs, {} if actions.are_masked else results[-1][0]))
        actions.note(results[0], results[-1])
    venv.infos_per_env = False
    return samples


def _time_replay(recipes: list[EnvRecipe], copy: bool, travels: bool) -> Timing:
    batch = EnvBatch(recipes, 0)
    with SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy, travels) as venv:
        return time_steps(venv, LegalActions(venv, heeds_masks=False), _REPLAY_S, _REPLAY_STEPS)


class _Replay(gym.Env[Any, Any]):
    """Returns what another env has returned, and does nothing else."""

    def __init__(self, env: gym.Env[Any, Any], samples: list[Sample]) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._samples = itertools.cycle(deepcopy(samples))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return next(self._samples)

    def step(self, action: Any) -> Any:
        obs, info = next(self._samples)
        return obs, 0.0, False, False, info


def _usage_of(env: gym.Env[Any, Any]) -> Usage:
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


# ---------------------------------------------------------------- copying


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


def _row_bytes(space: gym.Space[Any]) -> int:
    """Bytes of an observation, without what has no fixed size."""
    return sum(
        math.prod(leaf.shape) * leaf.dtype.itemsize
        for leaf in leaves(space, "observation")
        if isinstance(leaf, Leaf)
    )
