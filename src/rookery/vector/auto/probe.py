"""The probe: a short measurement of one env in a worker, and of the communication with the worker.

The env is built in a worker and used for nothing else. It is stepped twice: by this process, like
the envs of any worker, and by a serial vector env inside the worker. Envs that replay its results
show the cost of a call and of one more env. Each part has a time limit.
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

_IN_WORKER_S = 0.08  # seconds for all steps; at least one is made, even if it takes longer
_BUSY = 0.9  # of a core; a process with a smaller share has competitors

# Deadlines of the probe, far beyond its normal duration: an env that misses one is treated as hung.
_DEADLINES = FaultPolicy(step_timeout_s=10.0, reset_timeout_s=30.0, make_timeout_s=120.0)
_ANSWER_TIMEOUT_S = 40.0


def measure(
    recipe: EnvRecipe,
    num_envs: int,
    copy: bool,
    start_method: str | None,
    threads_per_worker: int | None,
) -> Measurement:
    """Measure one env, for about 0.2 s after the start of a worker.

    Args:
        recipe: recipe of the env.
        num_envs: number of envs that the vector env will have.
        copy: results are copied.
        start_method: start method of the worker.
        threads_per_worker: threads of numerical libraries in the worker.

    Raises:
        RookeryError: the env cannot be pickled, raises, hangs or exits.
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
    """Kill the worker without waiting for its env, which raised or hangs."""
    venv._pending.was_cut_short = True
    with suppress(RookeryError):
        venv.close(terminate=True)


def _ask_worker(venv: ProcessVectorEnv, function: Callable[[Any], Any]) -> Any:
    """Return ``function(env)``, called in the worker, with a deadline."""
    venv._request("apply", [(function, [0])])
    ((_, answer),) = venv._outcomes("apply", _ANSWER_TIMEOUT_S)[0]
    return answer


# ---------------------------------------------------------------- evaluation


def combine(
    timing: Timing,
    report: SerialReport,
    copying_s: float,
    memory_bytes: int = 0,
    is_of_resets: bool = False,
    left_share: float = 1.0,
    core_back_s: float = 0.0,
) -> Measurement:
    """Return the measurement that results from all timings.

    Args:
        timing: timing of the env in a worker, measured by the caller.
        report: timings of serial vector envs in the worker.
        copying_s: least seconds per env for copying a batch of all envs.
        memory_bytes: resident memory of the worker.
        is_of_resets: resets were timed instead of steps.
        left_share: share of a core that other processes leave, over the whole measurement. A part
            of it may be too short to notice them.
        core_back_s: result of `waited_for_core`.
    """
    here, real = report.here_one, report.real
    serial_s = _slope("call_s", here, report.here_many)  # all costs except the step of the env
    writing_s = _slope("stepping_s", report.there_one, report.there_many)
    reading_s = _slope("rereading_s", report.there_one, report.there_many)
    calls = timing.calls if real is None else real.calls
    waiting_s, core_share = spent(report.before, report.after, calls)
    if real is None:
        env_s = max(timing.mean_busy_s - waiting_s, 0.0) * core_share
    else:
        if core_share < _BUSY:  # competitors make the mean of a few steps unreliable
            waiting_s = min(waiting_s, max(real.call_s - real.cpu_s, 0.0))
        # CPU seconds do not depend on the load of the machine. But for cheap steps they are a small
        # difference of large numbers, so the median duration is used too.
        most_s = max(real.stepping_s - here.stepping_s - waiting_s, 0.0) * core_share
        env_s = max(real.cpu_s - here.cpu_s, most_s)
    # One env costs more when read alone than as one of many, because the caches are cold.
    alone_s = max(timing.reading_s - report.there_one.rereading_s, 0.0)
    if real is not None:
        alone_s += max(timing.busy_s - real.busy_s - max(writing_s - serial_s, 0.0), 0.0)
    waking_s = max(timing.least_asking_s - here.least_asking_s, 0.0)
    messages_s = max(timing.answered_s - timing.mean_busy_s - here.asking_s - waking_s, 0.0)
    return Measurement(
        env_s=env_s + max(serial_s, writing_s + copying_s if copying_s else 0.0),
        worker_env_s=env_s + writing_s,
        waiting_s=waiting_s,
        reading_s=max(reading_s, copying_s),
        call_s=max(here.call_s - serial_s, 0.0),
        worker_s=waking_s + timing.again_s,
        round_trip_s=messages_s + alone_s,
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

    The waiting time is the time in which the process neither computed nor was ready to run; not all
    systems report the latter. An env that waits gives up its core voluntarily about once per call.
    If there are fewer such switches, the time is attributed to other processes, or to the host of a
    virtual machine.
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
    """Return the mean seconds until a preempted process gets a core again.

    This uses the whole measurement, because a part of it may be too short to notice other
    processes. If the system does not report how long a process was ready to run, only the part in
    which the env was stepped is used.
    """
    if first.queued_s is not None and last.queued_s is not None:
        before, after, waited_s = first, last, last.queued_s - first.queued_s
    else:
        before, after = report.before, report.after
        waited_s = max(after.wall_s - before.wall_s - (after.cpu_s - before.cpu_s), 0.0)
    if before.losses is None or after.losses is None:
        return waited_s
    return waited_s / max(after.losses - before.losses, 1)
