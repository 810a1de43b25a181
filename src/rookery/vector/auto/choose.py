"""The choice of ``backend="auto"``: measure one env briefly, then choose the fastest backend."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from rookery.common.cpus import cpu_capacity, usable_cpus
from rookery.env.recipe import EnvRecipe
from rookery.errors import EnvFailed, PicklingError, RookeryError, WorkerDied, WorkerTimeout
from rookery.vector.auto.plans import (
    Machine,
    Measurement,
    Plan,
    Wishes,
    best_plan,
    make_plans,
    thread_plan,
)
from rookery.vector.auto.probe import measure

_MOST_CHARACTERS = 300  # of an error message within a reason


@dataclass(frozen=True)
class Choice:
    """The choice of ``backend="auto"``.

    Attributes:
        backend: ``"serial"`` or ``"process"``.
        num_workers: number of worker processes; 0 for serial.
        caller_steps: the calling process steps some of the envs.
        measurement: the measurement of one env; None if nothing was measured.
        plans: all candidates, with the fastest first.
        reason: a sentence for people.
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
    copy: bool = True,
) -> Choice:
    """Measure a throwaway env in a worker and choose the fastest way to run all of them.

    An env that raises, hangs, exits or cannot be pickled is not an error here: the choice is then
    made without a measurement, see :func:`unmeasured`.

    Args:
        recipes: recipes of all envs; the first is measured.
        num_workers: number of workers that the user asked for, or None.
        caller_steps: setting of the user, or None.
        start_method: start method of workers.
        threads_per_worker: threads of numerical libraries in each worker.
        copy: results are copied.
    """
    if len(recipes) == 1:
        return Choice("serial", 0, False, None, (), "serial: a single env needs no workers")
    available_bytes = int(psutil.virtual_memory().available)
    machine = Machine(usable_cpus(), cpu_capacity(), available_bytes)
    wishes = Wishes(num_workers, caller_steps)
    try:
        measured = measure(recipes[0], len(recipes), copy, start_method, threads_per_worker)
    except Exception as error:  # a failure of this env does not mean that all fail
        return unmeasured(error, len(recipes), machine, wishes)
    return chosen(len(recipes), measured, machine, wishes)


def chosen(num_envs: int, measured: Measurement, machine: Machine, wishes: Wishes) -> Choice:
    """Return the choice for a measurement."""
    plans = make_plans(num_envs, measured, machine, wishes)
    best = best_plan(plans, measured)
    reason = _reason(best, plans, measured, machine) + _about_threads(
        num_envs, best, measured, machine
    )
    return Choice(best.backend, best.num_workers, best.caller_steps, measured, tuple(plans), reason)


def unmeasured(error: Exception, num_envs: int, machine: Machine, wishes: Wishes) -> Choice:
    """Return the choice if the env could not be measured.

    Envs stay in this process if they cannot be pickled, if they cannot be built in a worker, or if
    no worker can be started. They also stay here if the env raised an exception and there is only
    one CPU. Otherwise they run in worker processes, one per usable CPU: the cost of their steps is
    unknown, and an env that hangs or exits then stops only its worker.
    """
    where = "in worker processes"
    if isinstance(error, (WorkerDied, WorkerTimeout)):
        what = "made its worker exit" if isinstance(error, WorkerDied) else "did not answer in time"
        why = f"the measured env {what}, and a worker protects this process from that"
    elif isinstance(error, EnvFailed) and error.command != "make":
        why = "the measured env raised an error"
        if machine.cpus == 1:
            where = "in this process"
            why += ", and there is only one CPU"
    else:
        where = "in this process"
        why = "the env cannot be built in a worker"
        if isinstance(error, PicklingError):
            why = "the envs cannot be pickled for a worker"
        elif not isinstance(error, RookeryError):
            why = "the measurement of an env in a worker failed"
    reason = f"{where}, without a measurement: {why} ({_in_short(error)})"
    if where == "in this process":
        return Choice("serial", 0, False, None, (), reason)
    caller_steps = bool(wishes.caller_steps)
    most = max(num_envs - caller_steps, 1)
    wanted = wishes.num_workers or max(machine.cpus - caller_steps, 1)
    return Choice("process", min(wanted, most), caller_steps, None, (), reason)


def _reason(best: Plan, plans: list[Plan], measured: Measurement, machine: Machine) -> str:
    others = ", ".join(str(plan) for plan in plans if plan is not best)
    call = "step"
    if measured.is_of_resets:
        call = "reset (no legal action was known, so the env was not stepped)"
    beside = ""
    if measured.core_share < 1:
        beside = (
            f", of which a computing process got {measured.core_share:.0%} of one, because of "
            f"other processes; it waited {measured.core_back_s * 1e6:.0f} us to get a core back"
        )
    return (
        f"{best}: a {call} takes {measured.env_s * 1e6:.1f} us of computing and "
        f"{measured.waiting_s * 1e6:.1f} us of waiting, a round trip to a worker "
        f"{measured.round_trip_s * 1e6:.1f} us, reading one env's results from it "
        f"{measured.reading_s * 1e6:.1f} us, on {machine.cpus} usable CPUs{beside}. "
        f"Other candidates: {others}"
    )


def _about_threads(num_envs: int, best: Plan, measured: Measurement, machine: Machine) -> str:
    """Return a remark on threads if they would be as fast; otherwise an empty string."""
    threads = thread_plan(num_envs, measured, machine)
    if not measured.waits or threads.predicted_s > best.predicted_s:
        return ""
    return (
        ". These envs wait during most of a step, so backend='thread' should be faster: "
        f"{threads}. It is never chosen automatically, because a crash of one env would end this "
        "process"
    )


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
