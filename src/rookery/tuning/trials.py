"""What was measured of a candidate."""

from __future__ import annotations

from dataclasses import dataclass, field

from rookery.tuning.candidates import Candidate
from rookery.tuning.memory import in_units

_LEAK_BYTES, _LEAK_SHARE = 32 * 2**20, 0.1  # of what is taken; a slice that grows by less is fine


@dataclass(frozen=True)
class Slice:
    """One stretch of collecting, in fresh envs.

    Attributes:
        steps: env steps, all envs together.
        collect_s: seconds of collecting them.
        learn_s: seconds of learning beside that; 0 where nothing was learned.
        windows: steps per second of parts of it.
        opened_s: seconds until the envs were there and had made their first rollout.
        memory_bytes: of all processes at its end.
        grown_bytes: by how much that grew after the first rollout; 0 where it should, since a
            replay is filled.
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
        """That memory grew as it does where something leaks, in words; empty if it did not."""
        if self.grown_bytes < max(_LEAK_BYTES, _LEAK_SHARE * self.memory_bytes):
            return ""
        grown = in_units(self.grown_bytes)
        return f"memory grew by {grown} in {self.steps:,} steps, as of a leak"

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
    """A candidate, and all that is known of it.

    Attributes:
        candidate: what was tried.
        slices: what was measured, in order.
        last_round: of the search, in which it took part; 0 before the first.
        failure: why it cannot be had, in one line; empty if it can.
        is_skipped: whether it failed without having been tried.
    """

    candidate: Candidate
    slices: list[Slice] = field(default_factory=list)
    last_round: int = 0
    failure: str = ""
    is_skipped: bool = False

    @property
    def is_measured(self) -> bool:
        """Whether there is a figure that counts."""
        return bool(self.slices) and not self.failure

    @property
    def rate(self) -> float:
        """Env steps per second of collecting, in all slices together: the longest count most."""
        return sum(each.steps for each in self.slices) / sum(each.collect_s for each in self.slices)

    @property
    def loop_rate(self) -> float:
        """Env steps per second of the whole loop, in all slices together."""
        seconds = sum(each.collect_s + each.learn_s for each in self.slices)
        return sum(each.steps for each in self.slices) / seconds

    @property
    def learns(self) -> bool:
        """Whether learning was measured too."""
        return any(each.learn_s for each in self.slices)

    def score(self, whole_loop: bool = False) -> float:
        """What candidates are compared by; 0 for one without a figure."""
        if not self.is_measured:
            return 0.0
        return self.loop_rate if whole_loop else self.rate

    @property
    def spread(self) -> tuple[float, float]:
        """Steps per second of collecting that a tenth of the parts were below, and above."""
        parts = sorted(rate for each in self.slices for rate in each.windows or (each.rate,))
        low, high = parts[round(0.1 * (len(parts) - 1))], parts[round(0.9 * (len(parts) - 1))]
        return min(low, self.rate), max(high, self.rate)  # slices hold what fills no part, too

    @property
    def growth(self) -> str:
        """That memory grew in every slice, in words; empty if it did not."""
        told = [each.growth for each in self.slices]
        return told[-1] if told and all(told) else ""

    @property
    def memory_bytes(self) -> int:
        """The most that was seen."""
        return max((each.memory_bytes for each in self.slices), default=0)
