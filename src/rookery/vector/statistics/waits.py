"""Waiting times of the caller, and the slowest backend of each timed step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rookery.vector.backend import Backend

# One in so many short steps is timed, and the slowest backend is determined after it. This costs
# 1 us, and 1 us per backend. Batches time their own steps at a different prime interval, so that
# both measurements rarely meet.
_SPARSELY = 37
_ALWAYS_FROM_S = 1e-3
T = TypeVar("T")


class Waits:
    """The waiting times of the caller.

    Args:
        backends: the backends of all envs.

    Attributes:
        waited_s: seconds in which the caller only waited, estimated from the timed steps.
        until_timed: number of steps of all envs until one must be waited for with
            :meth:`timed_step`. The caller decrements it; without workers it never becomes 0.
        last: number of steps in which each backend was the slowest.
        looks: number of measurements in which each backend was the slowest.
        behind_s: excess of each backend over the mean of all backends, in seconds per step, summed
            over the measurements in which it was the slowest.
    """

    def __init__(self, backends: Sequence[Backend]) -> None:
        self._backends = backends
        self._busy_s = [0.0] * len(backends)
        self._in_caller = [backend for backend in backends if backend.steps_in_caller]
        self._weight = 1  # number of steps that the next timed step represents
        self._has_waits = len(self._in_caller) < len(backends)
        self.until_timed = 1 if self._has_waits else 0
        self.waited_s = 0.0
        self.last = [0] * len(backends)
        self.looks = [0] * len(backends)
        self.behind_s = [0.0] * len(backends)

    def timed(self, wait: Callable[[], T]) -> T:
        """Call ``wait``, and add the time it takes."""
        return self._timed(wait, 1)

    def timed_step(self, wait: Callable[[], T]) -> T:
        """Wait for a step of all envs; add the time, and count which backend was slowest."""
        weight, self._weight = self._weight, 1  # an interrupted step represents only itself
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
        stepping_s, started = self._stepping_s(), time.perf_counter()
        try:
            return wait()
        finally:
            took_s = time.perf_counter() - started
            # The caller steps its envs only while it waits.
            self.waited_s += weight * max(took_s - (self._stepping_s() - stepping_s), 0.0)

    def _stepping_s(self) -> float:
        return sum(backend.busy_s for backend in self._in_caller)

    def note_round(self, took_s: Sequence[float], num_steps: int) -> None:
        """Add how long each backend took for the same steps.

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
