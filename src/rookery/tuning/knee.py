"""The choice of the number of envs, and the limits of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rookery.tuning.halving import by_num_envs
from rookery.tuning.memory import Ceiling, MemoryModel, in_units
from rookery.tuning.trials import Trial

ENOUGH = 0.95  # of the highest throughput; measurements vary by a few percent


def best_of_each(trials: Sequence[Trial], whole_loop: bool = False) -> list[Trial]:
    """Return the fastest trial of each number of envs, in order of increasing envs.

    Only trials that reached the last round for their number of envs are compared. Others were
    measured more briefly, and the machine may have been faster then.
    """
    found = []
    for group in by_num_envs(trials).values():
        known = [trial for trial in group if trial.is_measured]
        if known:
            found.append(max(known, key=lambda t: (t.last_round, t.score(whole_loop))))
    return found


def knee(best: Sequence[Trial], whole_loop: bool = False) -> Trial | None:
    """Return the trial with the fewest envs that reaches 95 % of the highest throughput.

    Only trials of the last round, such as the final, are considered.

    Args:
        best: result of `best_of_each`.
        whole_loop: True to include the time of learning.

    Returns:
        None if nothing was measured.
    """
    last = max((trial.last_round for trial in best), default=0)
    latest = [trial for trial in best if trial.last_round == last]
    most = max((trial.score(whole_loop) for trial in latest), default=0.0)
    return next((trial for trial in latest if trial.score(whole_loop) >= ENOUGH * most), None)


@dataclass(frozen=True)
class Limits:
    """The limits on the number of envs on this machine.

    Attributes:
        by_cores: number of envs at the knee of the throughput curve.
        by_memory: number of envs that fit in memory; None if it could not be measured.
        binds: the binding limit: ``"cores"``; ``"memory"``; ``"given"`` if the user gave the number
            of envs; or ``"search"`` if throughput still rises at the largest number tried.
        lines: explanation as lines of text.
    """

    by_cores: int
    by_memory: int | None
    binds: str
    lines: tuple[str, ...]


def limits_of(
    best: Sequence[Trial],
    chosen: Trial,
    cpus: int,
    ceiling: Ceiling,
    memory: MemoryModel | None,
    whole_loop: bool = False,
    does_not_fit: bool = False,
    is_given: bool = False,
) -> Limits:
    """Return the limits set by cores and memory, and which of them binds.

    Args:
        best: result of `best_of_each`, not empty.
        chosen: the trial at the knee.
        cpus: number of usable CPUs.
        ceiling: largest amount of memory for the run.
        memory: memory model of the run; None if it could not be measured.
        whole_loop: True to include the time of learning.
        does_not_fit: True if candidates with more envs were left out for lack of memory.
        is_given: True if the user gave the number of envs.
    """
    knee_envs, last = chosen.candidate.num_envs, best[-1].candidate.num_envs
    top = max(best, key=lambda trial: trial.score(whole_loop))
    cores = (
        f"{cpus} CPU{'s' * (cpus > 1)}: {knee_envs} envs make "
        f"{chosen.score(whole_loop):,.0f} steps/s, of at most {top.score(whole_loop):,.0f} "
        f"(with {top.candidate.num_envs} envs)"
    )
    carried = None
    room = "memory per env could not be measured"
    if memory is not None:
        carried = memory.carries(ceiling, chosen.candidate.mode.num_workers or 0)
        room = (
            f"memory carries about {carried:,} envs: {in_units(memory.each_bytes)} each with its "
            f"rollouts, {in_units(memory.worker_bytes)} a worker, ceiling {ceiling}"
        )
    if is_given:
        binds, why = "given", "the number of envs was given; without --num-envs it is searched for"
    elif knee_envs < last:
        binds, why = "cores", "the cores bind: more envs make hardly more steps, or fewer"
    elif does_not_fit or (carried is not None and carried < 2 * last):
        binds, why = "memory", "memory binds: more envs would make more steps, but do not fit"
    else:
        binds = "search"
        why = (
            f"neither binds yet: {last} envs are the most that was measured (--max-envs, or more "
            "--minutes, measure more)"
        )
    return Limits(knee_envs, carried, binds, (cores, room, why))
