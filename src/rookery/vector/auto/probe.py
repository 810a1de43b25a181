"""The probe: step one temporary env in a worker, and measure the env and the communication.

The env is built in a worker and used for nothing else. It is stepped twice: from this process, like
the envs of a worker, and by a serial vector env in the worker. Envs that only return recorded
results show the cost of a call and of each further env. Each part stops after a fixed time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psutil

from rookery.common.cpus import CpuUsage
from rookery.env.recipe import EnvRecipe
from rookery.errors import RookeryError
from rookery.vector.auto.legal_actions import LegalActions
from rookery.vector.auto.plans import Measurement
from rookery.vector.auto.serial_probe import (
    MANY,
    MOST_STEPS,
    SERIALLY_S,
    SerialReport,
    report_serially,
)
from rookery.vector.auto.timing import (
    Timing,
    Usage,
    row_bytes_of,
    time_copying,
    time_steps,
    usage_of,
)
from rookery.vector.process import ProcessVectorEnv
from rookery.worker.fault_policy import FaultPolicy

_IN_WORKER_S = 0.08  # time for the steps; at least one is made
_BUSY = 0.9  # share of a core below which other programs are busy

# Deadlines of the probe, far beyond its duration: an env that misses them hangs.
_DEADLINES = FaultPolicy(step_timeout_s=10.0, reset_timeout_s=30.0, make_timeout_s=120.0)
_ANSWER_TIMEOUT_S = 40.0


def measure(
    recipe: EnvRecipe,
    num_envs: int,
    copy: bool,
    start_method: str | None,
    threads_per_worker: int | None,
) -> Measurement:
    """Measure one env for about 0.2 s, plus the start of a worker.

    Args:
        recipe: recipe of the env.
        num_envs: number of envs of the vector env.
        copy: results are copied.
        start_method: start method of the worker.
        threads_per_worker: maximum number of threads of the worker.

    Raises:
        RookeryError: the env cannot be pickled, raises, hangs or dies.
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
        is_slow = time.perf_counter() - started > SERIALLY_S
        first = before = _ask_worker(venv, usage_of)
        timing = time_steps(venv, actions, _IN_WORKER_S, MOST_STEPS)
        after = _ask_worker(venv, usage_of)
        is_slow = is_slow or timing.busy_s > SERIALLY_S / 4
        report = _ask_worker(venv, partial(report_serially, copy=copy, steps_env=not is_slow))
        if is_slow:
            report = replace(report, before=before, after=after)
        core_back_s = waited_for_core(first, _ask_worker(venv, usage_of), report)
        left_share = CpuUsage.now(venv.pids[0]).left_since(cpus_before)
        memory_bytes = psutil.Process(venv.pids[0]).memory_info().rss
    except BaseException:
        _abandon(venv)
        raise
    with suppress(RookeryError):  # the measurement is complete
        venv.close()
    row_bytes = row_bytes_of(venv.single_observation_space)
    copying_s = time_copying(num_envs, row_bytes) if copy else 0.0
    return combine(
        timing, report, copying_s, memory_bytes, actions.are_unknown, left_share, core_back_s
    )


def _abandon(venv: ProcessVectorEnv) -> None:
    """Kill the worker at once, because its env raised or hangs."""
    venv._pending.was_cut_short = True
    with suppress(RookeryError):
        venv.close(terminate=True)


def _ask_worker(venv: ProcessVectorEnv, function: Callable[[Any], Any]) -> Any:
    """Call ``function(env)`` in the worker, with a timeout."""
    venv._request("apply", [(function, [0])])
    ((_, answer),) = venv._outcomes("apply", _ANSWER_TIMEOUT_S)[0]
    return answer


# ---------------------------------------------------------------- the result


def combine(
    timing: Timing,
    report: SerialReport,
    copying_s: float,
    memory_bytes: int = 0,
    is_of_resets: bool = False,
    left_share: float = 1.0,
    core_back_s: float = 0.0,
) -> Measurement:
    """Compute the measurement from all timings.

    Args:
        timing: timing of the env in a worker, as seen by the caller.
        report: timings of serial vector envs.
        copying_s: seconds for copying the row of one env in a batch of all.
        memory_bytes: resident memory of the worker.
        is_of_resets: resets were measured instead of steps.
        left_share: share of a core that other processes left during the whole measurement.
        core_back_s: see `waited_for_core`.
    """
    here, own = report.here_one, report.own
    serial_s = _slope("call_s", here, report.here_many)  # without the env's step
    writing_s = _slope("stepping_s", report.there_one, report.there_many)
    reading_s = _slope("rereading_s", report.there_one, report.there_many)
    calls = timing.calls if own is None else own.calls
    waiting_s, core_share = spent(report.before, report.after, calls)
    if own is None:
        env_s = max(timing.mean_busy_s - waiting_s, 0.0) * core_share
    else:
        if core_share < _BUSY:  # other programs distort means of few steps
            waiting_s = min(waiting_s, max(own.call_s - own.cpu_s, 0.0))
        # CPU seconds do not depend on the load, but for cheap steps they are a small difference of
        # large numbers. The median duration of a step is the second estimate.
        most_s = max(own.stepping_s - here.stepping_s - waiting_s, 0.0) * core_share
        env_s = max(own.cpu_s - here.cpu_s, most_s)
    # Cold caches make the results of a single env more expensive than those of one among many.
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
        core_back_s=core_back_s,
    )


def _slope(name: str, one: Timing, many: Timing) -> float:
    """Return the cost of one more env."""
    return float(max(getattr(many, name) - getattr(one, name), 0.0) / (MANY - 1))


def spent(before: Usage, after: Usage, calls: int) -> tuple[float, float]:
    """Return the seconds per call in which a process waited, and its share of a core otherwise.

    A process waits if it neither computes nor is ready to run, as far as the system reports that.
    An env that waits gives up its core about once per call. If it did not, the core was taken by
    other processes or by the host of a virtual machine.
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
    """Return the mean seconds until a process gets its core back after others took it.

    The whole measurement counts, because other programs may pause in parts of it. If the system
    does not report how long a process was ready, only the part with steps counts.
    """
    if first.queued_s is not None and last.queued_s is not None:
        before, after, waited_s = first, last, last.queued_s - first.queued_s
    else:
        before, after = report.before, report.after
        waited_s = max(after.wall_s - before.wall_s - (after.cpu_s - before.cpu_s), 0.0)
    if before.losses is None or after.losses is None:
        return waited_s
    return waited_s / max(after.losses - before.losses, 1)
