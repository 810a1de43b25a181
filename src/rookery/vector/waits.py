"""How long the caller waits for its envs, and for which carrier, noted as it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rookery.vector.carrier import Carrier

# Of so many steps one is followed by a look at who was last, where they are short: a microsecond
# for each carrier. It is another prime than that of batches, whose timed steps take longer.
_SPARSELY = 19
_ALWAYS_FROM_S = 1e-3
T = TypeVar("T")


class Waits:
    """Notes the caller's waits.

    Args:
        carriers: of all envs.

    Attributes:
        in_calls_s: seconds spent in waits, those in which the caller stepped envs itself included.
        until_compared: steps of all envs until the next after which carriers are compared; whoever
            waits counts it down.
        has_waits: whether there is anybody to wait for.
        last: per carrier, of how many steps it was the last.
        looks: per carrier, how many looks have found that.
        behind_s: per carrier, how much longer it took than all carriers in the mean, seconds per
            step, summed over those looks.
    """

    def __init__(self, carriers: Sequence[Carrier]) -> None:
        self._carriers = carriers
        self._busy_s = [0.0] * len(carriers)
        self._weight = 1  # for how many steps the next look stands
        self.has_waits = not all(carrier.steps_in_caller for carrier in carriers)
        self.in_calls_s = 0.0
        self.until_compared = 1
        self.last = [0] * len(carriers)
        self.looks = [0] * len(carriers)
        self.behind_s = [0.0] * len(carriers)

    @property
    def waited_s(self) -> float:
        """Seconds in which the caller did nothing but wait."""
        # It steps envs while it waits, and only then.
        own_s = sum(carrier.busy_s for carrier in self._carriers if carrier.steps_in_caller)
        return max(self.in_calls_s - own_s, 0.0) if self.has_waits else 0.0

    def timed(self, wait: Callable[[], T]) -> T:
        """Wait, and note how long."""
        started = time.perf_counter()
        try:
            return wait()
        finally:
            self.in_calls_s += time.perf_counter() - started

    def compare(self, took_s: float) -> None:
        """See which carrier was busy longest since the last look.

        Args:
            took_s: seconds that the wait for the last step took.
        """
        before, self._busy_s = self._busy_s, [carrier.busy_s for carrier in self._carriers]
        self.note_round([b - a for a, b in zip(before, self._busy_s, strict=True)], self._weight)
        self._weight = self.until_compared = 1 if took_s >= _ALWAYS_FROM_S else _SPARSELY

    def note_round(self, took_s: Sequence[float], num_steps: int) -> None:
        """Note how long all carriers took for some steps that they made side by side.

        Args:
            took_s: seconds of each.
            num_steps: how many steps.
        """
        if len(took_s) < 2:
            return
        longest_s = max(took_s)
        last = took_s.index(longest_s)
        self.last[last] += num_steps
        self.looks[last] += 1
        self.behind_s[last] += (longest_s - sum(took_s) / len(took_s)) / num_steps
