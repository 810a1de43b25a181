"""``backend="auto"``: measure one env, then choose the fastest way to run all of them."""

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

_MOST_WORDS = 300  # characters of an error in a reason


@dataclass(frozen=True)
class Choice:
    """The choice of ``backend="auto"``.

    Attributes:
        backend: ``"serial"`` or ``"process"``.
        num_workers: number of worker processes; 0 for serial.
        caller_steps: the calling process steps a share of the envs.
        measurement: the measurement of one env; None if it failed.
        plans: all candidates, the fastest first.
        reason: explanation of the choice.
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
    """Measure a temporary env in a worker and choose the fastest way to run all envs.

    If the env cannot be measured (it raises, hangs, dies or cannot be pickled), nothing is raised,
    and the choice follows the rules of :func:`unmeasured`.

    Args:
        recipes: recipes of all envs; the first is measured.
        num_workers: the user's number of workers, or None.
        caller_steps: the user's choice, or None.
        start_method: start method of the worker.
        threads_per_worker: maximum number of threads of the worker.
        copy: results are copied.
    """
    if len(recipes) == 1:
        return Choice("serial", 0, False, None, (), "serial: there is only one env")
    machine, wishes = machine_here(), Wishes(num_workers, caller_steps)
    try:
        measured = measure(recipes[0], len(recipes), copy, start_method, threads_per_worker)
    except Exception as error:  # the other envs may work
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
    """Return the choice if no env could be measured.

    Envs that cannot be pickled or built in a worker stay in this process. So do envs that raised
    on a machine with one CPU. All others run in worker processes, one per usable CPU: the duration
    of their steps is unknown, and an env that hangs or dies then affects only its worker.
    """
    where = "in worker processes"
    if isinstance(error, (WorkerDied, WorkerTimeout)):
        what = "killed its worker" if isinstance(error, WorkerDied) else "did not answer in time"
        why = f"the measured env {what}, and a worker protects this process"
    elif isinstance(error, EnvFailed) and error.command != "make":
        why = "the measured env raised an error"
        if machine.cpus == 1:
            where = "in this process"
            why += ", and there is only one CPU"
    else:
        where = "in this process"
        why = "the measured env cannot be built in a worker"
        if isinstance(error, PicklingError):
            why = "the envs cannot be sent to a worker"
        elif not isinstance(error, RookeryError):
            why = "measuring an env in a worker failed"
    reason = f"{where}, without a measurement: {why} ({_in_short(error)})"
    if where == "in this process":
        return Choice("serial", 0, False, None, (), reason)
    caller_steps = bool(wishes.caller_steps)
    most = max(num_envs - caller_steps, 1)
    wanted = wishes.num_workers or max(machine.cpus - caller_steps, 1)
    return Choice("process", min(wanted, most), caller_steps, None, (), reason)


def machine_here() -> Machine:
    """Return the CPUs and memory that this process may use."""
    return Machine(usable_cpus(), cpu_capacity(), int(psutil.virtual_memory().available))


def _reason(best: Plan, plans: list[Plan], measured: Measurement, machine: Machine) -> str:
    others = ", ".join(str(plan) for plan in plans if plan is not best)
    call = "step"
    if measured.is_of_resets:
        call = "reset (no legal action was known)"
    beside = ""
    if measured.core_share < 1:
        beside = (
            f"; beside other programs a computing process got {measured.core_share:.0%} of a CPU, "
            f"and waited {measured.core_back_s * 1e6:.0f} us to get it back"
        )
    return (
        f"{best}: a {call} takes {measured.env_s * 1e6:.1f} us of computing and "
        f"{measured.waiting_s * 1e6:.1f} us of waiting, a round trip to a worker "
        f"{measured.round_trip_s * 1e6:.1f} us, reading one env's results from it "
        f"{measured.reading_s * 1e6:.1f} us, on {machine.cpus} usable CPUs{beside}. "
        f"Other candidates: {others}"
    )


def _about_threads(num_envs: int, best: Plan, measured: Measurement, machine: Machine) -> str:
    """Return a hint at threads if they would be as fast; else empty."""
    threads = thread_plan(num_envs, measured, machine)
    if not measured.waits or threads.predicted_s > best.predicted_s:
        return ""
    return (
        f". These envs wait for most of a step, so backend='thread' may be faster: {threads}. It "
        "is never chosen automatically, because a crash of one env would end this process"
    )


def _in_short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]}..."
