"""The probe: step one throwaway env in a worker for a moment, and say what it and the talking cost.

The env is built in a worker, and never used for anything else. There it is stepped twice: from
here, as a worker's envs are, and by a serial vector env in the worker itself; an env that does
nothing shows what a serial vector env costs. All of it happens beside whatever else the machine
does, and none of it for long: each part stops when its time is over.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
from gymnasium.vector import AutoresetMode

from rookery.env.arrays import BatchArrays, BatchSpaces
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.env.spaces import Leaf, leaves
from rookery.errors import RookeryError
from rookery.vector.base import VectorEnv
from rookery.vector.legal import LegalActions
from rookery.vector.plans import Measurement
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.serial import SerialVectorEnv
from rookery.worker.faults import FaultPolicy

if sys.platform != "win32":
    import resource

# How long the parts may take; a step that takes longer is still made, once.
_IN_WORKER_S, _SERIALLY_S, _FOR_CALLER_S = 0.09, 0.06, 0.02
_MOST_STEPS = 2000
_WARM_UP_STEPS = 5
_EMPTY_STEPS, EMPTY_ENVS = 100, 9
_REREADINGS = 9
_MOST_COPIED_BYTES = 2**25  # enough to see what copying a large batch costs
_LARGE_BATCH_BYTES = 2**20  # smaller ones are copied as fast as the one row that is measured

# The probe's own deadlines, far beyond its time: whoever passes them hangs, or may as well.
_DEADLINES = FaultPolicy(step_timeout_s=10.0, reset_timeout_s=30.0, make_timeout_s=120.0)
_ANSWER_TIMEOUT_S = 40.0


@dataclass(frozen=True)
class Timing:
    """What calls of ``step`` cost, in seconds per call; medians, if nothing else is said.

    Attributes:
        asking_s: until the envs were asked.
        stepping_s: until all had answered.
        mean_stepping_s: the same, the mean.
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
    stepping_s: float
    mean_stepping_s: float
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
    """

    wall_s: float
    cpu_s: float
    queued_s: float | None
    waits: int | None


@dataclass(frozen=True)
class SerialReport:
    """What a worker tells of serial vector envs in it.

    Attributes:
        one: of an env that does nothing.
        many: of ``EMPTY_ENVS`` such envs.
        own: of the env that is measured; None if its steps take too long for it to matter.
        busy_for_caller_s: what stepping that env takes a batch whose results go elsewhere; median.
        before: the worker's usage before ``own``.
        after: the worker's usage after it.
    """

    one: Timing
    many: Timing
    own: Timing | None
    busy_for_caller_s: float
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
        started = time.perf_counter()
        actions = LegalActions(venv)
        is_slow = time.perf_counter() - started > _SERIALLY_S
        before = _ask_worker(venv, _usage_of)
        timing = time_steps(venv, actions, _IN_WORKER_S, _MOST_STEPS)
        after = _ask_worker(venv, _usage_of)
        is_slow = is_slow or timing.busy_s > _FOR_CALLER_S / 2
        report = _ask_worker(venv, partial(report_serially, copy=copy, steps_env=not is_slow))
        if is_slow:
            report = replace(report, before=before, after=after)
        memory_bytes = psutil.Process(venv.pids[0]).memory_info().rss
    except BaseException:
        _abandon(venv)
        raise
    with suppress(RookeryError):  # all that was to be known is known
        venv.close()
    row_bytes = _row_bytes(venv.single_observation_space)
    copying_s = time_copying(num_envs, row_bytes) if copy else 0.0
    return combine(timing, report, copying_s, memory_bytes, actions.are_unknown)


def _abandon(venv: ProcessVectorEnv) -> None:
    """End the worker at once: its env has raised or hangs, and is not to be waited for."""
    venv._pending.was_cut_short = True
    with suppress(RookeryError):
        venv.close(terminate=True)


def _ask_worker(venv: ProcessVectorEnv, function: Callable[[Any], Any]) -> Any:
    """``function(env)``, called in the worker, which has its time for that."""
    venv._request("apply", [(function, [0])])
    ((_, answer),) = venv._answers("apply", _ANSWER_TIMEOUT_S)[0]
    return answer


# ---------------------------------------------------------------- what follows from it


def combine(
    timing: Timing,
    report: SerialReport,
    copying_s: float,
    memory_bytes: int = 0,
    is_of_resets: bool = False,
) -> Measurement:
    """What follows from all timings.

    Args:
        timing: of the env in a worker, as its caller saw it.
        report: of serial vector envs.
        copying_s: what copying the row of one env costs at least, in a batch of all.
        memory_bytes: of the worker.
        is_of_resets: whether resets stood for steps.
    """
    one, own = report.one, report.own
    # An env that does nothing, and a call of no env at all.
    empty_step_s = _slope("stepping_s", report)
    reading_none_s = one.rereading_s - _slope("rereading_s", report)
    call_s = max(one.asking_s + one.stepping_s - empty_step_s + reading_none_s, 0.0)

    calls = timing.calls if own is None else own.calls
    waiting_s, core_share = spent(report.before, report.after, calls)
    reading_s = max(timing.rereading_s - reading_none_s, 0.0)
    once_s = max(timing.reading_s - timing.rereading_s, 0.0)  # with whatever left the caches
    if own is None:
        worker_env_s = max(timing.mean_busy_s - waiting_s, 0.0) * core_share
        env_s = worker_env_s + reading_s
    else:
        own_reading_s = max(own.rereading_s - reading_none_s, 0.0)
        # CPU seconds are the same however busy the machine is; what measuring took is taken out.
        measuring_s = max(one.cpu_s - one.call_s, 0.0)
        stepping_s = max(own.cpu_s - measuring_s - call_s - own_reading_s, empty_step_s)
        env_s = stepping_s + max(own_reading_s, copying_s)
        worker_env_s = stepping_s + max(report.busy_for_caller_s - own.busy_s, 0.0)
        once_s += max(timing.busy_s - max(report.busy_for_caller_s, own.busy_s), 0.0)
    return Measurement(
        env_s=env_s,
        worker_env_s=worker_env_s,
        waiting_s=waiting_s,
        reading_s=max(reading_s, copying_s),
        call_s=call_s,
        worker_s=max(timing.asking_s - one.asking_s, 0.0) + timing.again_s,
        round_trip_s=max(timing.mean_stepping_s - timing.mean_busy_s, 0.0) + once_s,
        core_share=core_share,
        memory_bytes=memory_bytes,
        is_of_resets=is_of_resets,
    )


def spent(before: Usage, after: Usage, calls: int) -> tuple[float, float]:
    """Seconds per call in which a process waited, and the share of a core it got otherwise.

    A process that neither computes nor is ready to waits. Where the system does not say whether it
    was ready, it waited if it gave up its core by itself about once in each call, as an env that
    waits must; if not, others had the core.
    """
    wall_s, cpu_s = after.wall_s - before.wall_s, after.cpu_s - before.cpu_s
    waited_s = max(wall_s - cpu_s, 0.0)
    if before.queued_s is not None and after.queued_s is not None:
        waited_s = max(waited_s - (after.queued_s - before.queued_s), 0.0)
    elif before.waits is not None and after.waits is not None:
        waited_s = waited_s if 2 * (after.waits - before.waits) >= calls else 0.0
    active_s = wall_s - waited_s
    share = min(cpu_s / active_s, 1.0) if active_s > 0 and cpu_s > 0 else 1.0
    return waited_s / calls, share


def _slope(name: str, report: SerialReport) -> float:
    """What one more env that does nothing costs."""
    more = getattr(report.many, name) - getattr(report.one, name)
    return float(max(more, 0.0) / (EMPTY_ENVS - 1))


# ---------------------------------------------------------------- on both sides


def time_steps(venv: VectorEnv, actions: LegalActions, budget_s: float, most: int) -> Timing:
    """Step all envs until a time is over, or as often as is said, and once at least."""
    rows: list[tuple[float, ...]] = []
    limit, cpu_before = time.perf_counter() + budget_s, time.process_time()
    for _ in range(_WARM_UP_STEPS + most):
        rows.append(_timed_step(venv, actions))
        if time.perf_counter() > limit:
            break
    cpu_s = time.process_time() - cpu_before
    rereading_s = min(_time_rereading(venv) for _ in range(_REREADINGS))
    calls = len(rows)
    warm = rows[_WARM_UP_STEPS:] if calls > 2 * _WARM_UP_STEPS else rows
    asking, stepping, again, reading, busy = zip(*warm, strict=True)
    median, mean = statistics.median, statistics.fmean
    reading_s = max(median(reading) - median(again), 0.0)
    return Timing(
        asking_s=median(asking),
        stepping_s=median(stepping),
        mean_stepping_s=mean(stepping),
        again_s=median(again),
        reading_s=reading_s,
        rereading_s=min(rereading_s, reading_s),
        busy_s=median(busy),
        mean_busy_s=mean(busy),
        cpu_s=cpu_s / calls,
        calls=calls,
    )


def _time_rereading(venv: VectorEnv) -> float:
    started = time.perf_counter()
    venv._results.step(venv._has_infos())
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
    venv._wait_for_all(call, None)
    t2 = clock()
    venv._wait_for_all(call, None)
    t3 = clock()
    results = venv.reset_wait() if action is None else venv.step_wait()
    t4 = clock()
    actions.note(results[0], results[-1])
    return t1 - t0, t2 - t1, t3 - t2, t4 - t3, carrier.busy_s - busy_before


# ---------------------------------------------------------------- in the worker


def report_serially(env: gym.Env[Any, Any], copy: bool, steps_env: bool) -> SerialReport:
    """Time serial vector envs of envs that do nothing, and one of ``env`` if that is wanted."""
    one, many = (_time_empty(count, copy) for count in (1, EMPTY_ENVS))
    before, own, busy_for_caller_s = _usage_of(env), None, 0.0
    if steps_env:
        batch = EnvBatch([EnvRecipe(lambda: env)], 0)
        venv = SerialVectorEnv.of_batch(batch, AutoresetMode.NEXT_STEP, copy)
        try:
            actions = LegalActions(venv)
            before = _usage_of(env)
            own = time_steps(venv, actions, _SERIALLY_S, _MOST_STEPS)
            after = _usage_of(env)
            busy_for_caller_s = own.busy_s
            if not actions.are_masked and not _has_free_leaves(venv.single_action_space):
                busy_for_caller_s = _time_for_caller(batch, venv, actions)
        finally:
            batch.envs.clear()  # it is not theirs to close
            venv.close()
        return SerialReport(one, many, own, busy_for_caller_s, before, after)
    return SerialReport(one, many, own, busy_for_caller_s, before, _usage_of(env))


def _time_for_caller(batch: EnvBatch, venv: SerialVectorEnv, actions: LegalActions) -> float:
    """Seconds for a step of a batch whose results are for another process: median."""
    spaces = BatchSpaces(venv.single_observation_space, venv.single_action_space, 1, 1)
    views = {name: np.zeros(shape, dtype) for name, (shape, dtype) in spaces.columns().items()}
    arrays = BatchArrays(spaces, views)
    venv.reset()
    batch.attach(arrays, AutoresetMode.DISABLED, travels=True)
    times, limit = [], time.perf_counter() + _FOR_CALLER_S
    while time.perf_counter() < limit:
        before = batch.busy_s
        if arrays.terminated[0][0] or arrays.truncated[0][0]:
            batch.reset(0, [0], [None], [None])
        else:
            arrays.write_actions(actions.next())
            batch.step(0)
        times.append(batch.busy_s - before)
    return statistics.median(times)


def _time_empty(count: int, copy: bool) -> Timing:
    with SerialVectorEnv([_Empty] * count, copy=copy) as venv:
        return time_steps(venv, LegalActions(venv), _SERIALLY_S / 4, _EMPTY_STEPS)


class _Empty(gym.Env[Any, Any]):
    """Does nothing."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    _obs = np.zeros(1, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._obs, {}

    def step(self, action: Any) -> Any:
        return self._obs, 0.0, False, False, {}


def _usage_of(env: gym.Env[Any, Any]) -> Usage:
    """What the process of an env has used."""
    waits = None
    if sys.platform != "win32":
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return Usage(time.perf_counter(), time.process_time(), _queued_s(), waits)


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


def _has_free_leaves(space: gym.Space[Any]) -> bool:
    return not all(isinstance(leaf, Leaf) for leaf in leaves(space, "action"))
