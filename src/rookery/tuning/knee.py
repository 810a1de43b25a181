"""From figures to a choice: the best of each number of envs, the knee, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rookery.tuning.halving import by_num_envs
from rookery.tuning.memory import Ceiling, MemoryModel, in_units
from rookery.tuning.trials import Trial

ENOUGH = 0.95  # of the highest throughput; a figure is right within some percent


def best_of_each(trials: Sequence[Trial], whole_loop: bool = False) -> list[Trial]:
    """The fastest of each number of envs, few envs first; those without a figure are left out.

    Only those that came as far as any are compared: they took turns to the end, while what was left
    out before was measured when the machine may have been faster, and for a shorter time.
    """
    found = []
    for group in by_num_envs(trials).values():
        known = [trial for trial in group if trial.is_measured]
        if known:
            found.append(max(known, key=lambda t: (t.last_round, t.score(whole_loop))))
    return found


def knee(best: Sequence[Trial], whole_loop: bool = False) -> Trial | None:
    """The fewest envs that reach 95 % of the highest throughput; None if nothing was measured.

    The choice is among those that came as far as any: where there was a final, among them.

    Args:
        best: what `best_of_each` gave.
        whole_loop: whether learning counts.
    """
    last = max((trial.last_round for trial in best), default=0)
    latest = [trial for trial in best if trial.last_round == last]
    most = max((trial.score(whole_loop) for trial in latest), default=0.0)
    return next((trial for trial in latest if trial.score(whole_loop) >= ENOUGH * most), None)


@dataclass(frozen=True)
class Limits:
    """How many envs the machine carries.

    Attributes:
        by_cores: the knee's number of envs.
        by_memory: how many fit into memory; None if that could not be measured.
        binds: ``"cores"``, ``"memory"``, ``"given"`` where the number of envs was, or ``"search"``
            where throughput still rises at the most that was tried.
        lines: all of it in words.
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
    """Say how many envs cores and memory carry, and which of them ends it.

    Args:
        best: what `best_of_each` gave, not empty.
        chosen: the knee.
        cpus: that may be used.
        ceiling: of memory.
        memory: what envs need; None if that could not be measured.
        whole_loop: whether learning counts.
        does_not_fit: whether more envs were left out because memory does not carry them.
        is_given: whether the number of envs was not searched for.
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
