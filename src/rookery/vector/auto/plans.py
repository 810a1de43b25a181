"""Where envs could live, and how long a step of all of them would take there: pure functions.

Every time here was measured a moment ago, on the machine at hand, beside whatever else it does. The
model only adds them up, so it holds on a machine that is five times slower, or that takes ten times
as long to wake a process.

    serial     = call + n * (env + waiting)
    processes  = call + W * worker + round trip + share * (env' + waiting) + n * reading
    and caller = the same, with one more to share, and half the round trip

*env* is what the env and all that a serial vector env does for it compute; *env'* is what a worker
computes for it; *reading* is what the caller does for each env with what the worker wrote: copies,
decoding, infos. *share* is the largest number of envs that one process steps. Where more processes
want to compute than there are cores (this program's, or others that were there before), they share
them evenly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

MOST_THREADS = 32  # that backend="thread" starts by itself
_WORTH_IT = 0.9  # of serial's time; a smaller gain is not worth a process
_SURE = 1.5  # round trips that must be gained: what comes back from one finds its caches cold
_AS_GOOD = 1.02  # of two plans, this near, the one with fewer processes is better
_MEMORY_SHARE = 0.5  # of what is available, at most, for worker processes
_WAITS = 0.5  # of a call; envs that wait longer are worth more workers than there are CPUs
_ALONE = 0.9  # of a core; who gets that much has it for himself
_HALF = 0.5  # of a round trip: a caller that steps a share is awake when its workers are done


@dataclass(frozen=True)
class Machine:
    """What there is to share.

    Attributes:
        cpus: that this process may run on at once, at least 1.
        capacity: CPUs' worth of computing per second; less than ``cpus`` under a quota.
        available_bytes: memory that workers may take.
    """

    cpus: int
    capacity: float
    available_bytes: int


@dataclass(frozen=True)
class Measurement:
    """What stepping one env showed, in a worker and in a serial vector env there.

    Attributes:
        env_s: seconds of computing for a step of one env in a serial vector env, resets, results
            and all.
        worker_env_s: the same in a worker, without what its caller does with the results.
        waiting_s: seconds of a step in which the env needs no CPU.
        reading_s: seconds that the results of one env from a worker cost the caller.
        call_s: seconds that a call of ``step`` costs whatever the number of envs.
        worker_s: seconds that one more worker costs the caller in each call.
        round_trip_s: seconds from an order to the answer, less what the env takes.
        core_share: of a core that a process gets which computes all the time; less than 1 beside
            other processes.
        core_back_s: seconds until a process has a core again that others have taken from it.
        memory_bytes: resident memory of the worker.
        is_of_resets: whether resets stand for steps, because no action was known to be legal.
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
        """Whether the env waits for most of a step."""
        return self.waiting_s > _WAITS * (self.waiting_s + self.env_s + self.call_s)


@dataclass(frozen=True)
class Wishes:
    """What the user has decided.

    Attributes:
        num_workers: as many workers, if there are any; None leaves it open.
        caller_steps: whether the caller steps a share, if there are workers; None leaves it open.
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
    """All that can be weighed, the fastest first."""
    plans = [_serial(num_envs, measured, machine)]
    plans += [
        _processes(num_envs, measured, machine, workers, caller)
        for caller in (False, True)
        if wishes.caller_steps in (None, caller)
        for workers in _worker_counts(num_envs - caller, caller, measured, machine, wishes)
    ]
    return sorted(plans, key=lambda plan: plan.predicted_s)


def best_plan(plans: list[Plan], measured: Measurement) -> Plan:
    """The one to take: the fastest, unless it gains too little for what it costs.

    Beside others, one of the processes of a step may lose its core, and all wait until it has one
    again: that time must be gained.
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
    """What threads of this process should take: one of them computes, the others wait."""
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
    # Of envs that wait, some wait while others compute; all of them compute as fast as cores allow.
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
    """Of a core that each of so many processes gets if all of them compute at once."""
    others = machine.cpus / measured.core_share - 1 if measured.core_share < _ALONE else 0.0
    fair = machine.cpus / max(processes + others, machine.cpus)
    return min(fair, machine.capacity / processes, 1.0)


def _worker_counts(
    most: int, caller: bool, measured: Measurement, machine: Machine, wishes: Wishes
) -> list[int]:
    """How many workers to weigh: no more than can compute at once, unless envs wait."""
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
