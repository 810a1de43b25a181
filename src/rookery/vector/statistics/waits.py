"""How long the caller waits for its envs, and for which backend, noted as it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rookery.vector.backend import Backend

# Of so many steps one is timed and followed by a look at who was last, where they are short: it
# takes a microsecond, and one more for each backend. It is another prime than that of batches,
# whose timed steps take longer.
_SPARSELY = 37
_ALWAYS_FROM_S = 1e-3
T = TypeVar("T")


class Waits:
    """Notes the caller's waits.

    Args:
        backends: of all envs.

    Attributes:
        waited_s: seconds in which the caller did nothing but wait; of short steps an estimate from
            those that were timed.
        until_timed: steps of all envs until the next whose wait is :meth:`timed_step`; whoever
            waits counts it down. Never 0 where there is nobody to wait for.
        last: per backend, of how many steps it was the last.
        looks: per backend, how many looks have found that.
        behind_s: per backend, how much longer it took than all backends in the mean, seconds per
            step, summed over those looks.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._busy_s = [0.0] * len(backends)
        self._in_caller = [backend for backend in backends if backend.steps_in_caller]
        self._weight = 1  # for how many steps the next that is timed stands
        self._has_waits = len(self._in_caller) < len(backends)
        self.until_timed = 1 if self._has_waits else 0
        self.waited_s = 0.0
        self.last = [0] * len(backends)
        self.looks = [0] * len(backends)
        self.behind_s = [0.0] * len(backends)

    def timed(self, wait: Callable[[], T]) -> T:
        """Wait, and note how long."""
        return self._timed(wait, 1)

    def timed_step(self, wait: Callable[[], T]) -> T:
        """Wait for a step of all envs, note how long, and which backend was busy longest."""
        weight, self._weight = self._weight, 1  # a step that is broken off stands for itself
        self.until_timed = 1
        started = time.perf_counter()
        result = self._timed(wait, weight)
        took_s = time.perf_counter() - started
        before, self._busy_s = self._busy_s, [backend.busy_s for backend in self._backends]
        self.note_round([b - a for a, b in zip(before, self._busy_s, strict=True)], weight)
        self._weight = self.until_timed = 1 if took_s >= _ALWAYS_FROM_S else _SPARSELY
        return result

    def _timed(self, wait: Callable[[], T], weight: int) -> T:
        if not self._has_waits:
            return wait()
        own_s, started = self._own_s(), time.perf_counter()
        try:
            return wait()
        finally:
            took_s = time.perf_counter() - started
            # It steps envs while it waits, and only then.
            self.waited_s += weight * max(took_s - (self._own_s() - own_s), 0.0)

    def _own_s(self) -> float:
        return sum(backend.busy_s for backend in self._in_caller)

    def note_round(self, took_s: Sequence[float], num_steps: int) -> None:
        """Note how long all backends took for some steps that they made side by side.

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
