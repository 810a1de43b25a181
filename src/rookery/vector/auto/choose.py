"""What ``backend="auto"`` does: measure one env for a moment, then choose where all should live."""

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

_MOST_WORDS = 300  # of an error, in a reason


@dataclass(frozen=True)
class Choice:
    """What ``backend="auto"`` chose.

    Attributes:
        backend: ``"serial"`` or ``"process"``.
        num_workers: worker processes; 0 for serial.
        caller_steps: whether the calling process steps a share.
        measurement: what the choice rests on; None if nothing was measured.
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
    copy: bool = True,
) -> Choice:
    """Measure a throwaway env in a worker and choose the fastest way to run all of them.

    What keeps an env from being measured (it raises, hangs, dies, cannot travel) is no failure: the
    choice is then made without, see :func:`unmeasured`.

    Args:
        recipes: of all envs; the first is measured.
        num_workers: what the user wants, or None.
        caller_steps: what the user wants, or None.
        start_method: for the worker.
        threads_per_worker: for the worker.
        copy: whether results are to be copied.
    """
    if len(recipes) == 1:
        return Choice("serial", 0, False, None, (), "serial: a single env has nobody to share with")
    machine, wishes = machine_here(), Wishes(num_workers, caller_steps)
    try:
        measured = measure(recipes[0], len(recipes), copy, start_method, threads_per_worker)
    except Exception as error:  # whatever one env does, all of them may still work
        return unmeasured(error, len(recipes), machine, wishes)
    return chosen(len(recipes), measured, machine, wishes)


def chosen(num_envs: int, measured: Measurement, machine: Machine, wishes: Wishes) -> Choice:
    """The choice that follows from a measurement."""
    plans = make_plans(num_envs, measured, machine, wishes)
    best = best_plan(plans, measured)
    reason = _reason(best, plans, measured, machine) + _about_threads(
        num_envs, best, measured, machine
    )
    return Choice(best.backend, best.num_workers, best.caller_steps, measured, tuple(plans), reason)


def unmeasured(error: Exception, num_envs: int, machine: Machine, wishes: Wishes) -> Choice:
    """The choice when no env could be measured.

    The rule: envs that a worker cannot have (they cannot travel, cannot be built there, no worker
    can be started) stay in this process. So do envs that raised where there is but one CPU. All
    others go into worker processes, one per usable CPU: nobody knows what their steps cost, and an
    env that hangs or dies takes no more than its worker with it.
    """
    where = "in worker processes"
    if isinstance(error, (WorkerDied, WorkerTimeout)):
        what = "ended its worker" if isinstance(error, WorkerDied) else "did not answer in time"
        why = f"the env that was tried {what}, and a worker keeps that from this process"
    elif isinstance(error, EnvFailed) and error.command != "make":
        why = "the env that was tried raised an error"
        if machine.cpus == 1:
            where = "in this process"
            why += ", and there is but one CPU"
    else:
        where = "in this process"
        why = "the env that was tried cannot be built in a worker"
        if isinstance(error, PicklingError):
            why = "the envs cannot be sent to a worker"
        elif not isinstance(error, RookeryError):
            why = "trying an env in a worker failed"
    reason = f"{where}, without a measurement: {why} ({_in_short(error)})"
    if where == "in this process":
        return Choice("serial", 0, False, None, (), reason)
    caller_steps = bool(wishes.caller_steps)
    most = max(num_envs - caller_steps, 1)
    wanted = wishes.num_workers or max(machine.cpus - caller_steps, 1)
    return Choice("process", min(wanted, most), caller_steps, None, (), reason)


def machine_here() -> Machine:
    """What this process may use."""
    return Machine(usable_cpus(), cpu_capacity(), int(psutil.virtual_memory().available))


def _reason(best: Plan, plans: list[Plan], measured: Measurement, machine: Machine) -> str:
    others = ", ".join(str(plan) for plan in plans if plan is not best)
    call = "step"
    if measured.is_of_resets:
        call = "reset (no action was known to be legal, so none was tried)"
    beside = ""
    if measured.core_share < 1:
        beside = (
            f", of which a process got {measured.core_share:.0%} of one while it computed, and "
            f"waited {measured.core_back_s * 1e6:.0f} us for one that others had taken"
        )
    return (
        f"{best}: a {call} takes {measured.env_s * 1e6:.1f} us of computing and "
        f"{measured.waiting_s * 1e6:.1f} us of waiting, a round trip to a worker "
        f"{measured.round_trip_s * 1e6:.1f} us, reading one env's results from it "
        f"{measured.reading_s * 1e6:.1f} us, on {machine.cpus} usable CPUs{beside}. "
        f"Also weighed: {others}"
    )


def _about_threads(num_envs: int, best: Plan, measured: Measurement, machine: Machine) -> str:
    """A word on threads, where they would do as well."""
    threads = thread_plan(num_envs, measured, machine)
    if not measured.waits or threads.predicted_s > best.predicted_s:
        return ""
    return (
        f". These envs wait for most of a step, so backend='thread' should do better: {threads}. "
        "It is not chosen by itself, because a fault of one env would then end this process"
    )


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}..."
