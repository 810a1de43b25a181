"""Successive halving: measure all candidates briefly, then the better half for longer.

Halves are taken separately for each number of envs, until two candidates of each are left. A
dropped candidate returns if the remaining ones turn out slower than it was. Some time is
reserved for the final. It measures the best candidate of each number of envs, if this candidate is
nearly as fast as the fastest of all. The result is one of the finalists.

The candidates of a round take turns, forwards and backwards, so that a change in the speed of the
machine affects all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rookery.errors import RookeryError
from rookery.tuning.candidates import Candidate, Mode
from rookery.tuning.trials import Slice, Trial, by_num_envs

LEAST_S, MOST_S = 0.3, 10.0  # duration of one slice
FINALISTS = 2  # candidates of each number of envs in the last round
FINAL = 0.25  # share of the time
NEAR = 0.8  # least speed of a finalist, relative to the fastest
_FIRST_ROUND = 0.7  # largest share of the time before the final
_BESIDE_S = 1.0  # assumed time to start and close envs, until it is measured


class CandidateFailed(RookeryError):
    """A candidate that failed; the message is the reason in one line.

    Attributes:
        is_by_mode: True if the same mode will also fail with more envs.
    """

    def __init__(self, reason: str, is_by_mode: bool = True) -> None:
        super().__init__(reason)
        self.is_by_mode = is_by_mode


Measure = Callable[[Candidate, float], Slice]


class Halving:
    """A search that can be interrupted at any time; ``trials`` has the results so far.

    Args:
        candidates: candidates in the order of trials.
        measure: function that measures a candidate for a number of seconds, or raises
            `CandidateFailed`.
        seconds: duration of the search.
        clock: function that returns the time in seconds.
        whole_loop: True to include the time of learning.
        say: function that receives progress messages, line by line.
        most_seconds: duration of the search if ``seconds`` does not suffice to try each candidate
            once; None for ``seconds``.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        measure: Measure,
        seconds: float,
        clock: Callable[[], float],
        whole_loop: bool = False,
        say: Callable[[str], None] = lambda line: None,
        most_seconds: float | None = None,
    ) -> None:
        self.trials = [Trial(candidate) for candidate in candidates]
        self._measure, self._clock, self._say = measure, clock, say
        self._whole_loop = whole_loop
        self._began, self._seconds = clock(), seconds
        self._most_seconds = max(most_seconds or seconds, seconds)
        self._rounds_share = 1.0 - FINAL if len(by_num_envs(self.trials)) > 1 else 1.0
        self._beside: list[float] = []
        self._failed_modes: dict[Mode, tuple[float, str]] = {}

    @property
    def _end(self) -> float:
        return self._began + self._seconds

    @property
    def _end_of_rounds(self) -> float:
        return self._began + self._seconds * self._rounds_share

    @property
    def _end_of_first_round(self) -> float:
        return self._began + self._seconds * self._rounds_share * _FIRST_ROUND

    def run(self) -> list[Trial]:
        """Search until the time is over or the last round is complete, and return all trials."""
        alive = list(self.trials)
        rounds = num_rounds(alive)
        places = {count: len(group) for count, group in by_num_envs(alive).items()}
        for number in range(rounds):
            if not alive or self._clock() >= self._end_of_rounds:
                break
            for trial in alive:
                trial.last_round = number + 1
            self._round(alive, number, rounds - number)
            places = {count: max(math.ceil(size / 2), FINALISTS) for count, size in places.items()}
            alive = leaders(self.trials, places, self._whole_loop)
        self._final()
        self.leave_out("the time was over")
        return self.trials

    def leave_out(self, reason: str) -> None:
        """Record the reason in each trial that was not measured."""
        for trial in self.trials:
            if not trial.slices and not trial.failure:
                trial.failure, trial.is_skipped = f"not tried: {reason}", True

    def _round(self, alive: list[Trial], number: int, rounds_left: int) -> None:
        left = (self._end_of_rounds - self._clock()) / rounds_left
        name = f"round {number + 1}"
        if number > 0:
            self._there_and_back(name, alive, left, self._end_of_rounds)
            return
        seconds = self._of_each(name, len(alive), 1, left)
        for tried, trial in enumerate(self._likeliest_first()):
            if self._clock() >= self._end_of_first_round:
                self._lengthen((len(alive) - tried) * (seconds + self._beside_s()))
            if self._clock() >= self._end_of_first_round:
                return
            self._try(trial, seconds)

    def _lengthen(self, missing_s: float) -> None:
        """Extend the search, if allowed, so that the first round can be completed."""
        needed = (self._clock() - self._began + missing_s) / (self._rounds_share * _FIRST_ROUND)
        before, self._seconds = self._seconds, min(needed, self._most_seconds)
        if self._seconds > before:
            self._say(
                f"starting envs takes {self._beside_s():.1f} s each time: the search takes "
                f"{self._seconds / 60:.2g} minutes instead of {before / 60:.2g} (--minutes)"
            )

    def _likeliest_first(self) -> Iterator[Trial]:
        """Yield the trials of the first number of envs, then the others, fastest mode first.

        If envs start slowly, the time may not suffice for the slowest modes.
        """
        count = self.trials[0].candidate.num_envs
        first = [trial for trial in self.trials if trial.candidate.num_envs == count]
        others = [trial for trial in self.trials if trial.candidate.num_envs != count]
        yield from first
        known = {trial.candidate.mode: trial for trial in first if trial.is_measured}
        speeds = {mode: trial.score(self._whole_loop) for mode, trial in known.items()}
        yield from sorted(others, key=lambda trial: -speeds.get(trial.candidate.mode, 0.0))

    def _final(self) -> None:
        """Measure the best candidate of each number of envs again, if it is nearly the fastest."""
        one_of_each = dict.fromkeys(by_num_envs(self.trials), 1)
        best = leaders(self.trials, one_of_each, self._whole_loop)
        most = max((trial.score(self._whole_loop) for trial in best), default=0.0)
        near = [trial for trial in best if trial.score(self._whole_loop) >= NEAR * most]
        if len(near) < 2 or self._clock() >= self._end:
            return
        last = 1 + max(trial.last_round for trial in self.trials)
        for trial in near:
            trial.last_round = last
        self._there_and_back("final", near, self._end - self._clock(), self._end)

    def _there_and_back(self, name: str, alive: list[Trial], left: float, stop: float) -> None:
        seconds = self._of_each(name, len(alive), 2, left)
        for trial in (*alive, *reversed(alive)):
            if self._clock() >= stop:
                return
            self._try(trial, seconds)

    def _of_each(self, name: str, count: int, passes: int, left: float) -> float:
        """Return the seconds of each slice, given the seconds left for all slices."""
        seconds = slice_seconds(left, passes * count, self._beside_s())
        self._say(f"{name}: {count} candidate{'s' * (count != 1)}, {passes * seconds:.1f} s each")
        return seconds

    def _try(self, trial: Trial, seconds: float) -> None:
        if trial.failure:
            return
        mode = trial.candidate.mode
        num_envs, reason = self._failed_modes.get(mode, (math.inf, ""))
        if trial.candidate.num_envs > num_envs:
            trial.failure, trial.is_skipped = f"as with {num_envs} envs: {reason}", True
            return
        began = self._clock()
        try:
            trial.slices.append(self._measure(trial.candidate, seconds))
            self._beside.append(max(self._clock() - began - seconds, 0.0))
        except CandidateFailed as failure:
            trial.failure = str(failure)
            if failure.is_by_mode:
                self._failed_modes[mode] = min(
                    self._failed_modes.get(mode, (math.inf, "")),
                    (trial.candidate.num_envs, trial.failure),
                )
            self._say(f"{trial.candidate}: failed, {trial.failure}")

    def _beside_s(self) -> float:
        """Return the mean time for starting and closing the envs of a slice."""
        return sum(self._beside) / len(self._beside) if self._beside else _BESIDE_S


def num_rounds(trials: Sequence[Trial]) -> int:
    """Return the number of rounds until two candidates of each number of envs are left."""
    sizes = [len(group) / FINALISTS for group in by_num_envs(trials).values()]
    return max((math.ceil(math.log2(max(size, 2))) for size in sizes), default=0) + 1


def leaders(
    trials: Sequence[Trial], places: Mapping[int, int], whole_loop: bool = False
) -> list[Trial]:
    """Return the best trials of each number of envs, in their original order.

    Args:
        trials: all trials.
        places: number of trials to return for each number of envs.
        whole_loop: True to include the time of learning.
    """
    kept: list[int] = []
    for count, group in by_num_envs(trials).items():
        known = [trial for trial in group if trial.is_measured]
        known.sort(key=lambda trial: trial.score(whole_loop), reverse=True)
        kept += [id(trial) for trial in known[: places[count]]]
    return [trial for trial in trials if id(trial) in kept]


def slice_seconds(round_s: float, num_slices: int, beside_s: float) -> float:
    """Return the duration of each slice of a round, in seconds.

    Args:
        round_s: duration of the whole round.
        num_slices: number of slices in the round.
        beside_s: time for starting and closing the envs of a slice.
    """
    return min(max(round_s / max(num_slices, 1) - beside_s, LEAST_S), MOST_S)
