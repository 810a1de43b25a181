"""Candidate backends with their predicted step times: pure functions.

All times come from a measurement on this machine, under its present load. The model only adds them,
so it also holds for machines that are slower, or that need longer to wake a process.

    serial     = call + n * (env + waiting)
    processes  = call + W * worker + round trip + share * (env' + waiting) + n * reading
    and caller = the same, with one more process to step envs, and half the round trip

- *n*: number of envs. *W*: number of workers.
- *call*: cost of a call of ``step`` for any number of envs.
- *env*: computing time of the env and of a serial vector env for it.
- *env'*: computing time of the env and of a worker for it.
- *waiting*: time of a step in which the env needs no CPU.
- *worker*: cost of one more worker for the caller.
- *reading*: cost for the caller of reading one env's results: copies, decoding, infos.
- *share*: largest number of envs that one process steps.

If more processes compute than there are cores, they share the cores evenly. This includes processes
of other programs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rookery.vector.thread import MOST_THREADS

_WORTH_IT = 0.9  # of the serial time; a smaller gain does not justify processes
_SURE = 1.5  # round trips that must be gained, because the caller finds its CPU caches cold
_AS_GOOD = 1.02  # ratio of times below which the plan with fewer processes is better
_MEMORY_SHARE = 0.5  # of the available memory, maximum for worker processes
_WAITS = 0.5  # of a call; envs that wait longer profit from more workers than CPUs
_ALONE = 0.9  # of a core; a process with this share has no competitor
_HALF = 0.5  # of a round trip: a caller that steps envs is awake when its workers answer


@dataclass(frozen=True)
class Machine:
    """The CPUs and the memory that this process may use.

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
    """The cost of stepping one env, in a worker and in a serial vector env in that worker.

    Attributes:
        env_s: seconds of computing for a step of one env in a serial vector env, including its
            share of resets and the handling of results.
        worker_env_s: seconds of computing for a step of one env in a worker, without the handling
            of results by the caller.
        waiting_s: seconds of a step in which the env needs no CPU.
        reading_s: seconds that the caller needs to read the results of one env from a worker.
        call_s: seconds of a call of ``step`` that do not depend on the number of envs.
        worker_s: seconds that one more worker adds to each call.
        round_trip_s: seconds from an order to its answer, without the time of the env.
        core_share: share of a core, in 0 to 1, that a computing process gets; less than 1 if other
            processes compete.
        core_back_s: mean seconds until a preempted process gets a core again.
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
        """True if the env waits during most of a step."""
        return self.waiting_s > _WAITS * (self.waiting_s + self.env_s + self.call_s)


@dataclass(frozen=True)
class Wishes:
    """The settings that the user has chosen.

    Attributes:
        num_workers: number of workers, if processes are chosen; None means any.
        caller_steps: the caller steps some of the envs, if processes are chosen; None means either.
    """

    num_workers: int | None = None
    caller_steps: bool | None = None


@dataclass(frozen=True)
class Plan:
    """A candidate: a way to run the envs, with its predicted time for a step of all envs."""

    backend: str
    num_workers: int
    caller_steps: bool
    predicted_s: float

    def __str__(self) -> str:
        if self.backend == "serial":
            where = "in this process"
        else:
            what = "thread" if self.backend == "thread" else "worker process"
            ending = "" if self.num_workers == 1 else "s" if what == "thread" else "es"
            where = f"{self.num_workers} {what}{ending}"
            where += " and this process" if self.caller_steps else ""
        return f"{where} ({self.predicted_s * 1e6:.0f} us per step of all envs)"


def make_plans(
    num_envs: int, measured: Measurement, machine: Machine, wishes: Wishes
) -> list[Plan]:
    """Return all candidates, with the fastest first."""
    env_s = measured.env_s / _speed(1, measured, machine) + measured.waiting_s
    plans = [Plan("serial", 0, False, measured.call_s + num_envs * env_s)]
    plans += [
        _processes(num_envs, measured, machine, workers, caller)
        for caller in (False, True)
        if wishes.caller_steps in (None, caller)
        for workers in _worker_counts(num_envs - caller, caller, measured, machine, wishes)
    ]
    return sorted(plans, key=lambda plan: plan.predicted_s)


def best_plan(plans: list[Plan], measured: Measurement) -> Plan:
    """Return the fastest plan, or the serial plan if the gain is too small.

    If other processes compete for cores, a worker may be preempted while all others wait for it.
    The gain must then also exceed the time until it gets a core again.
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
    """Return the plan for threads. The model assumes that only one thread computes at a time."""
    threads = min(num_envs, MOST_THREADS)
    waiting = math.ceil(num_envs / threads) * measured.waiting_s
    computing = num_envs * measured.env_s / _speed(1, measured, machine)
    talking = measured.round_trip_s + threads * measured.worker_s
    return Plan("thread", threads, False, measured.call_s + talking + waiting + computing)


def _processes(
    num_envs: int, measured: Measurement, machine: Machine, workers: int, caller: bool
) -> Plan:
    stepping = workers + caller
    # While some envs wait, others compute, so at most one process per CPU computes at a time.
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
    """Return the share of a core that each process gets if this many compute at once."""
    others = machine.cpus / measured.core_share - 1 if measured.core_share < _ALONE else 0.0
    fair = machine.cpus / max(processes + others, machine.cpus)
    return min(fair, machine.capacity / processes, 1.0)


def _worker_counts(
    most: int, caller: bool, measured: Measurement, machine: Machine, wishes: Wishes
) -> list[int]:
    """Return the numbers of workers to consider: more than CPUs only if envs wait."""
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
