"""Measurement of the time that the caller waits for envs, and of the slowest worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rookery.vector.backend import Backend

# If steps are short, one in this many is measured, with the slowest backend. That takes a
# microsecond, and one more per backend. Batches use another prime, because their measured steps
# take longer.
_SPARSELY = 37
_ALWAYS_FROM_S = 1e-3
T = TypeVar("T")


class Waits:
    """Waiting times of the caller.

    Args:
        backends: the backends of all envs.

    Attributes:
        waited_s: seconds in which the caller only waited; for short steps an estimate.
        until_timed: number of steps until the next that is passed to :meth:`timed_step`. The caller
            counts it down. It never reaches 0 if the caller steps all envs.
        last: number of steps in which each backend was the slowest.
        looks: number of measurements in which each backend was the slowest.
        behind_s: sum over these measurements of the seconds per step by which each backend exceeded
            the mean of all.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._busy_s = [0.0] * len(backends)
        self._in_caller = [backend for backend in backends if backend.steps_in_caller]
        self._weight = 1  # number of steps that the next measured one represents
        self._has_waits = len(self._in_caller) < len(backends)
        self.until_timed = 1 if self._has_waits else 0
        self.waited_s = 0.0
        self.last = [0] * len(backends)
        self.looks = [0] * len(backends)
        self.behind_s = [0.0] * len(backends)

    def timed(self, wait: Callable[[], T]) -> T:
        """Call ``wait``, and add its duration."""
        return self._timed(wait, 1)

    def timed_step(self, wait: Callable[[], T]) -> T:
        """Wait for a step of all envs, and measure its duration and the slowest backend."""
        weight, self._weight = self._weight, 1  # an interrupted step represents itself
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
            # The caller steps its envs while it waits.
            self.waited_s += weight * max(took_s - (self._own_s() - own_s), 0.0)

    def _own_s(self) -> float:
        return sum(backend.busy_s for backend in self._in_caller)

    def note_round(self, took_s: Sequence[float], num_steps: int) -> None:
        """Add the durations of some steps that all backends made in parallel.

        Args:
            took_s: seconds of each backend.
            num_steps: number of steps.
        """
        if len(took_s) < 2:
            return
        longest_s = max(took_s)
        last = took_s.index(longest_s)
        self.last[last] += num_steps
        self.looks[last] += 1
        self.behind_s[last] += (longest_s - sum(took_s) / len(took_s)) / num_steps
