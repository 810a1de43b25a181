"""The measurements of a candidate."""

from __future__ import annotations

from dataclasses import dataclass, field

from rookery.tuning.candidates import Candidate
from rookery.tuning.memory import in_units

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
        return min(low, self.rate), max(
            high, self.rate
        )  # slices also contain steps outside of windows

    @property
    def growth(self) -> str:
        """A warning if memory grew in every slice; else empty."""
        told = [each.growth for each in self.slices]
        return told[-1] if told and all(told) else ""

    @property
    def memory_bytes(self) -> int:
        """Largest memory of all slices."""
        return max((each.memory_bytes for each in self.slices), default=0)
