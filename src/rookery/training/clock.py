"""Where the time of training goes."""

from __future__ import annotations

import time

from rookery.collect.base import Collector
from rookery.vector.base import VectorEnv


class Clock:
    """Splits time among policy, envs, waiting and learning, from counters that others keep.

    Args:
        collector: counts the seconds of deciding and of stepping.
        venv: knows how long its envs were busy.
        seconds: of training so far.
    """

    def __init__(self, collector: Collector, venv: VectorEnv, seconds: float) -> None:
        self._collector = collector
        self._venv = venv
        self._start = time.perf_counter() - seconds
        self._before = self._counters()

    @property
    def seconds(self) -> float:
        """Seconds of training so far, those before a resume included."""
        return time.perf_counter() - self._start

    def lap(self, began: float, collected: float) -> dict[str, float]:
        """Close one update and return its times.

        Args:
            began: when its collecting began, by ``time.perf_counter``.
            collected: when its rollout was complete.
        """
        now = time.perf_counter()
        counters = self._counters()
        policy, stepping, *busy = (a - b for a, b in zip(counters, self._before, strict=True))
        # Shares work side by side, so the busiest one is what the step had to take.
        env = min(max(busy), stepping)
        times = {
            "collect_s": collected - began,
            "policy_s": policy,
            "env_s": env,
            "wait_s": stepping - env,
            "learn_s": now - collected,
        }
        self._before = counters
        return times

    def _counters(self) -> tuple[float, ...]:
        shares = self._venv.statistics().shares
        collector = self._collector
        return (collector.policy_s, collector.env_s, *(share.busy_s for share in shares))
