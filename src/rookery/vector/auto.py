"""What ``backend="auto"`` does: measure one env for a moment, then choose where all should live."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil

from rookery.env.recipe import EnvRecipe
from rookery.vector.base import VectorEnv
from rookery.vector.cpus import usable_cpus
from rookery.vector.process import ProcessVectorEnv

_PROBE_S = 0.15
_PROBE_STEPS = 2000
_WARM_UP_STEPS = 5
_PER_BATCH_S = 1.2e-6  # what stepping a batch costs beside its envs; of one env it is a large part
_PER_CALL_S = 2.5e-6  # what a step costs the caller anyway: checks, copies, flags
_PER_WORKER_S = 3e-6  # what one more worker costs the caller per step: a ring and a wait
_PER_INFO_S = 5e-6  # what an info that is not empty costs on its way through the pipe
_WORTH_IT = 0.85  # of serial's time; a smaller gain is not worth a process
_WORTH_IT_S = 1e-5  # nor is one below this: processes that share cores vary by as much
_CALLER_OVERHEAD = (
    0.5  # of a round trip: while the caller steps its share, workers are awake already
)
_MEMORY_SHARE = 0.5  # of what is available, at most, for worker processes


@dataclass(frozen=True)
class Measurement:
    """What stepping one env in one worker showed.

    Attributes:
        step_s: seconds for a step in the worker, resets included.
        cpu_fraction: how much of that the env computes; the rest it waits.
        round_trip_s: seconds from the caller's step call to its result, less ``step_s``.
        has_infos: whether infos came with the steps.
        memory_bytes: resident memory of the worker.
    """

    step_s: float
    cpu_fraction: float
    round_trip_s: float
    has_infos: bool
    memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """One way to run the envs, and the time that a step of all of them should take."""

    backend: str
    num_workers: int
    caller_steps: bool
    predicted_s: float

    def __str__(self) -> str:
        if self.backend == "serial":
            where = "in this process"
        else:
            where = f"{self.num_workers} worker process{'es' if self.num_workers > 1 else ''}"
            where += " and this process" if self.caller_steps else ""
        return f"{where} ({self.predicted_s * 1e6:.0f} us per step of all envs)"


@dataclass(frozen=True)
class Choice:
    """What ``backend="auto"`` chose.

    Attributes:
        backend: ``"serial"`` or ``"process"``.
        num_workers: worker processes; 0 for serial.
        caller_steps: whether the calling process steps a share.
        measurement: what the choice rests on; None if nothing had to be measured.
        plans: all that were weighed, the fastest first.
        reason: in words.
    """

    backend: str
    num_workers: int
    caller_steps: bool
    measurement: Measurement | None
    plans: tuple[Plan, ...]
    reason: str

    def __str__(self) -> str:
        return self.reason


def choose(
    recipes: list[EnvRecipe],
    num_workers: int | None,
    caller_steps: bool | None,
    start_method: str | None,
    threads_per_worker: int | None,
) -> Choice:
    """Measure a throwaway env in a worker and choose the fastest way to run all of them.

    Args:
        recipes: of all envs; the first is measured.
        num_workers: what the user wants, or None.
        caller_steps: what the user wants, or None.
        start_method: for the worker.
        threads_per_worker: for the worker.
    """
    if len(recipes) == 1:
        return Choice("serial", 0, False, None, (), "serial: a single env has nobody to share with")
    measured = measure(recipes[0], start_method, threads_per_worker)
    plans = sorted(
        _plans(len(recipes), measured, num_workers, caller_steps), key=lambda plan: plan.predicted_s
    )
    serial = next(plan for plan in plans if plan.backend == "serial")
    worth_it_s = min(_WORTH_IT * serial.predicted_s, serial.predicted_s - _WORTH_IT_S)
    best = plans[0] if plans[0].predicted_s < worth_it_s else serial
    return Choice(
        best.backend,
        best.num_workers,
        best.caller_steps,
        measured,
        tuple(plans),
        _reason(best, plans, measured),
    )


def _reason(best: Plan, plans: list[Plan], measured: Measurement) -> str:
    others = ", ".join(str(plan) for plan in plans if plan is not best)
    return (
        f"{best}: a step takes {measured.step_s * 1e6:.1f} us, {measured.cpu_fraction:.0%} of it "
        f"computing, a round trip to a worker {measured.round_trip_s * 1e6:.1f} us more, on "
        f"{usable_cpus()} usable CPUs. Also weighed: {others}"
    )


def measure(
    recipe: EnvRecipe, start_method: str | None, threads_per_worker: int | None
) -> Measurement:
    """Step one env with random actions in a worker for at most about 0.2 s."""
    with ProcessVectorEnv(
        [recipe], num_workers=1, start_method=start_method, threads_per_worker=threads_per_worker
    ) as venv:
        worker = psutil.Process(venv.pids[0])
        venv.action_space.seed(0)
        actions = [venv.action_space.sample() for _ in range(32)]
        venv.reset(seed=0)
        limit = time.perf_counter() + _PROBE_S
        has_infos = _step(venv, actions, _WARM_UP_STEPS, limit)[1]
        busy_before, cpu_before = _busy_s(venv), _cpu_s(worker)
        started = time.perf_counter()
        steps, infos = _step(venv, actions, _PROBE_STEPS, limit)
        elapsed = time.perf_counter() - started
        busy, cpu = _busy_s(venv) - busy_before, _cpu_s(worker) - cpu_before
        return Measurement(
            step_s=max(busy / steps - _PER_BATCH_S, 0.0),
            cpu_fraction=min(cpu / busy, 1.0) if elapsed > _PROBE_S / 3 else 1.0,
            round_trip_s=max(elapsed - busy, 0.0) / steps,
            has_infos=has_infos or infos,
            memory_bytes=worker.memory_info().rss,
        )


def _step(venv: VectorEnv, actions: list[Any], most: int, limit: float) -> tuple[int, bool]:
    has_infos = False
    for i in range(most):
        infos = venv.step(actions[i % len(actions)])[4]
        has_infos = has_infos or bool(infos)
        if time.perf_counter() > limit:
            return i + 1, has_infos
    return most, has_infos


def _busy_s(venv: VectorEnv) -> float:
    return venv.statistics().carriers[0].busy_s


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _plans(
    num_envs: int, measured: Measurement, num_workers: int | None, caller_steps: bool | None
) -> Iterator[Plan]:
    cpus = usable_cpus()
    yield Plan("serial", 0, False, _PER_CALL_S + num_envs * measured.step_s)
    for workers in _worker_counts(num_envs, measured, num_workers, cpus):
        for caller in (False, True) if caller_steps is None else (caller_steps,):
            if workers + caller <= num_envs:
                yield Plan(
                    "process",
                    workers,
                    caller,
                    _predicted_s(num_envs, measured, workers, caller, cpus),
                )


def _worker_counts(
    num_envs: int, measured: Measurement, num_workers: int | None, cpus: int
) -> list[int]:
    if num_workers is not None:
        return [min(num_workers, num_envs)]
    counts = {min(cpus, num_envs), min(cpus - 1, num_envs)}
    if measured.cpu_fraction < 0.5:  # envs that wait: more of them can wait at once
        room = int(
            _MEMORY_SHARE * psutil.virtual_memory().available / max(measured.memory_bytes, 1)
        )
        counts |= {min(num_envs, cpus * factor, max(room, 1)) for factor in (4, 16, num_envs)}
    return sorted(count for count in counts if count >= 1)


def _predicted_s(
    num_envs: int, measured: Measurement, workers: int, caller: bool, cpus: int
) -> float:
    """Time for a step of all envs: the longest share or all computing, plus the talking."""
    longest = math.ceil(num_envs / (workers + caller)) * measured.step_s
    computing = num_envs * measured.step_s * measured.cpu_fraction / cpus
    talking = (
        measured.round_trip_s * (_CALLER_OVERHEAD if caller else 1.0) + workers * _PER_WORKER_S
    )
    infos = num_envs * _PER_INFO_S * measured.has_infos
    return _PER_CALL_S + max(longest, computing) + talking + infos
