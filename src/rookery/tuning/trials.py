"""The measurements of candidates, the best number of envs, and the limits of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rookery.tuning.candidates import Candidate
from rookery.tuning.memory import Ceiling, MemoryModel, in_units

ENOUGH = 0.95  # of the highest throughput; measurements vary by a few percent
_LEAK_BYTES, _LEAK_SHARE = 32 * 2**20, 0.1  # share of the memory; smaller growth is not reported


@dataclass(frozen=True)
class Slice:
    """One measurement of collecting, in new envs.

    Attributes:
        steps: number of env steps of all envs.
        collect_s: seconds of collecting.
        learn_s: seconds of learning; 0 if learning was not measured.
        windows: steps per second of short parts of the slice.
        opened_s: seconds until the envs had started and collected their first rollout.
        memory_bytes: memory of all processes at the end.
        grown_bytes: growth of the memory after the first rollout; 0 if a replay is being filled.
    """

    steps: int
    collect_s: float
    learn_s: float = 0.0
    windows: tuple[float, ...] = ()
    opened_s: float = 0.0
    memory_bytes: int = 0
    grown_bytes: int = 0

    @property
    def growth(self) -> str:
        """A warning about growing memory; empty if it did not grow much."""
        if self.grown_bytes < max(_LEAK_BYTES, _LEAK_SHARE * self.memory_bytes):
            return ""
        grown = in_units(self.grown_bytes)
        return f"memory grew by {grown} in {self.steps:,} steps, maybe a leak"

    @property
    def rate(self) -> float:
        """Env steps per second of collecting."""
        return self.steps / self.collect_s

    @property
    def loop_rate(self) -> float:
        """Env steps per second of collecting and learning."""
        return self.steps / (self.collect_s + self.learn_s)


@dataclass
class Trial:
    """A candidate and its measurements.

    Attributes:
        candidate: the candidate.
        slices: measurements, in order.
        last_round: last round in which the candidate took part; 0 before the first.
        failure: reason of a failure, in one line; empty without a failure.
        is_skipped: True if the candidate was not tried.
    """

    candidate: Candidate
    slices: list[Slice] = field(default_factory=list)
    last_round: int = 0
    failure: str = ""
    is_skipped: bool = False

    @property
    def is_measured(self) -> bool:
        """True if the candidate was measured without a failure."""
        return bool(self.slices) and not self.failure

    @property
    def rate(self) -> float:
        """Env steps per second of collecting, over all slices."""
        return sum(each.steps for each in self.slices) / sum(each.collect_s for each in self.slices)

    @property
    def loop_rate(self) -> float:
        """Env steps per second of collecting and learning, over all slices."""
        seconds = sum(each.collect_s + each.learn_s for each in self.slices)
        return sum(each.steps for each in self.slices) / seconds

    @property
    def learns(self) -> bool:
        """True if learning was measured too."""
        return any(each.learn_s for each in self.slices)

    def score(self, whole_loop: bool = False) -> float:
        """Return the steps per second by which candidates are compared; 0 if not measured."""
        if not self.is_measured:
            return 0.0
        return self.loop_rate if whole_loop else self.rate

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and 90th percentile of the steps per second of collecting."""
        parts = sorted(rate for each in self.slices for rate in each.windows or (each.rate,))
        low, high = parts[round(0.1 * (len(parts) - 1))], parts[round(0.9 * (len(parts) - 1))]
        # Slices also contain steps outside of windows.
        return min(low, self.rate), max(high, self.rate)

    @property
    def growth(self) -> str:
        """A warning if memory grew in every slice; else empty."""
        warnings = [each.growth for each in self.slices]
        return warnings[-1] if warnings and all(warnings) else ""

    @property
    def memory_bytes(self) -> int:
        """Largest memory of all slices."""
        return max((each.memory_bytes for each in self.slices), default=0)


def by_num_envs(trials: Sequence[Trial]) -> dict[int, list[Trial]]:
    """Group trials by number of envs, in increasing order."""
    groups: dict[int, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.candidate.num_envs, []).append(trial)
    return dict(sorted(groups.items()))


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
