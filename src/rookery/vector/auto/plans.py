"""Candidates for ``backend="auto"``, with predicted step times: pure functions.

The model adds up times that were just measured on this machine, with its present load. It therefore
also holds on a machine that is five times slower, or takes ten times as long to wake a process.

    serial     = call + n * (env + waiting)
    processes  = call + W * worker + round trip + share * (env' + waiting) + n * reading
    and caller = the same, with one more to share, and half the round trip

*env* is the computing time of an env in a serial vector env, *env'* in a worker, and *reading* the
time in which the caller reads the results of one env: copies, decoding, infos. *share* is the
largest number of envs of one process. If more processes compute than there are cores, including
those of other programs, they share the cores evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST_THREADS = 32  # default maximum of backend="thread"
_WORTH_IT = 0.9  # largest share of the serial time; a smaller gain is not worth a process
_SURE = 1.5  # minimum gain in round trips, because caches are cold after one
_AS_GOOD = 1.02  # of plans within this factor, the one with fewer processes is better
_MEMORY_SHARE = 0.5  # largest share of the available memory for workers
_WAITS = 0.5  # share of a step; envs that wait longer use more workers than CPUs
_ALONE = 0.9  # share of a core from which a process counts as alone
_HALF = 0.5  # part of a round trip left, if the caller steps envs and so is awake


@dataclass(frozen=True)
class Machine:
    """CPUs and memory that this process may use.

    Attributes:
        cpus: number of usable CPUs, at least 1.
        capacity: CPU seconds per second; less than ``cpus`` under a quota.
        available_bytes: memory for workers.
    """

    cpus: int
    capacity: float
    available_bytes: int


@dataclass(frozen=True)
class Measurement:
    """Measured times of one env, in a worker and in a serial vector env there.

    Attributes:
        env_s: seconds of computing per step in a serial vector env, with resets and results.
        worker_env_s: seconds of computing per step in a worker.
        waiting_s: seconds per step in which the env needs no CPU.
        reading_s: seconds in which the caller reads the results of one env from a worker.
        call_s: fixed seconds per call of ``step``.
        worker_s: seconds per call of the caller for each worker.
        round_trip_s: seconds from an order to the answer, without the time of the env.
        core_share: share of a core that a computing process gets; below 1 beside other processes.
        core_back_s: seconds until a process gets its core back after another process took it.
        memory_bytes: resident memory of the worker.
        is_of_resets: resets were measured instead of steps, because no legal action was known.
    """

    env_s: float
    worker_env_s: float
    waiting_s: float
    reading_s: float
    call_s: float
    worker_s: float
    round_trip_s: float
    core_share: float = 1.0
    core_back_s: float = 0.0
    memory_bytes: int = 0
    is_of_resets: bool = False

    @property
    def waits(self) -> bool:
        """True if the env waits for most of a step."""
        return self.waiting_s > _WAITS * (self.waiting_s + self.env_s + self.call_s)


@dataclass(frozen=True)
class Wishes:
    """Settings of the user that restrict the choice.

    Attributes:
        num_workers: number of workers, if there are any; None is free.
        caller_steps: the caller steps a share, if there are workers; None is free.
    """

    num_workers: int | None = None
    caller_steps: bool | None = None


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
            what = "thread" if self.backend == "thread" else "worker process"
            where = f"{self.num_workers} {what}{_plural(what) if self.num_workers > 1 else ''}"
            where += " and this process" if self.caller_steps else ""
        return f"{where} ({self.predicted_s * 1e6:.0f} us per step of all envs)"


def make_plans(
    num_envs: int, measured: Measurement, machine: Machine, wishes: Wishes
) -> list[Plan]:
    """Return all candidates, the fastest first."""
    plans = [_serial(num_envs, measured, machine)]
    plans += [
        _processes(num_envs, measured, machine, workers, caller)
        for caller in (False, True)
        if wishes.caller_steps in (None, caller)
        for workers in _worker_counts(num_envs - caller, caller, measured, machine, wishes)
    ]
    return sorted(plans, key=lambda plan: plan.predicted_s)


def best_plan(plans: list[Plan], measured: Measurement) -> Plan:
    """Return the fastest plan, or serial if processes gain too little.

    Beside other programs, a process may lose its core during a step, and all others then wait for
    it. The gain must exceed that time.
    """
    serial = next(plan for plan in plans if plan.backend == "serial")
    fastest, least_s = plans[0].predicted_s, _SURE * measured.round_trip_s
    if measured.core_share < _ALONE:
        least_s = max(least_s, measured.core_back_s)
    if fastest > min(_WORTH_IT * serial.predicted_s, serial.predicted_s - least_s):
        return serial
    as_good = [plan for plan in plans if plan.predicted_s <= _AS_GOOD * fastest]
    return min(as_good, key=lambda plan: plan.num_workers)


def thread_plan(num_envs: int, measured: Measurement, machine: Machine) -> Plan:
    """Return the plan with threads, of which one computes while the others wait."""
    threads = min(num_envs, MOST_THREADS)
    waiting = math.ceil(num_envs / threads) * measured.waiting_s
    computing = num_envs * measured.env_s / _speed(1, measured, machine)
    talking = measured.round_trip_s + threads * measured.worker_s
    return Plan("thread", threads, False, measured.call_s + talking + waiting + computing)


def _serial(num_envs: int, measured: Measurement, machine: Machine) -> Plan:
    env_s = measured.env_s / _speed(1, measured, machine) + measured.waiting_s
    return Plan("serial", 0, False, measured.call_s + num_envs * env_s)


def _processes(
    num_envs: int, measured: Measurement, machine: Machine, workers: int, caller: bool
) -> Plan:
    stepping = workers + caller
    # Some waiting envs wait while others compute, so cores limit only their computing.
    at_once = min(stepping, max(machine.cpus, 1)) if measured.waits else stepping
    speed = _speed(at_once, measured, machine)
    share = math.ceil(num_envs / stepping)
    longest = share * (measured.worker_env_s / speed + measured.waiting_s)
    computing = num_envs * measured.worker_env_s / (at_once * speed)
    caller_s = measured.call_s + workers * measured.worker_s + num_envs * measured.reading_s
    round_trip_s = measured.round_trip_s * (_HALF if caller else 1.0)
    predicted_s = caller_s / _speed(1, measured, machine) + round_trip_s + max(longest, computing)
    return Plan("process", workers, caller, predicted_s)


def _speed(processes: int, measured: Measurement, machine: Machine) -> float:
    """Return the share of a core that each process gets if all compute at once."""
    others = machine.cpus / measured.core_share - 1 if measured.core_share < _ALONE else 0.0
    fair = machine.cpus / max(processes + others, machine.cpus)
    return min(fair, machine.capacity / processes, 1.0)


def _worker_counts(
    most: int, caller: bool, measured: Measurement, machine: Machine, wishes: Wishes
) -> list[int]:
    """Return candidate numbers of workers: more than CPUs only if envs wait."""
    if wishes.num_workers is not None:
        return [min(wishes.num_workers, most)]
    counts = {machine.cpus - caller}
    if measured.waits:
        room = int(_MEMORY_SHARE * machine.available_bytes // max(measured.memory_bytes, 1))
        counts |= {min(count, max(room, 1)) for count in _doublings(machine.cpus, most)}
    return sorted({min(count, most) for count in counts if count >= 1})


def _doublings(first: int, last: int) -> Iterator[int]:
    while first < last:
        yield first
        first *= 2
    yield last


def _plural(noun: str) -> str:
    return "es" if noun.endswith("s") else "s"
