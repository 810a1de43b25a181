"""Where the time of training goes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from rookery.collect.base import Collector
from rookery.vector.base import VectorEnv

_FIRST = 0.1  # of an interval, after which what comes once in it comes first


def as_if_done(interval_s: float) -> float:
    """When what is done every so often was done last, for its first time to come early."""
    return time.perf_counter() - (1 - _FIRST) * interval_s


class Meter(ABC):
    """Says how the time of collecting was spent, by counters of seconds that others keep."""

    def __init__(self) -> None:
        self._before = self._counters()

    @abstractmethod
    def _counters(self) -> tuple[float, ...]:
        """Seconds so far."""

    def _spent(self) -> list[float]:
        """By how much each counter has grown since the last call."""
        now, before = self._counters(), self._before
        self._before = now
        return [a - b for a, b in zip(now, before, strict=True)]

    @abstractmethod
    def lap(self, collect_s: float) -> dict[str, float]:
        """Return ``policy_s``, ``env_s`` and ``wait_s`` since the lap before.

        Args:
            collect_s: what the caller spent in collecting since then.
        """


class CallerMeter(Meter):
    """The policy acts in this process, by turns with the envs.

    Args:
        collector: counts the seconds of deciding and of stepping.
        venvs: know how long their envs were busy.
    """

    def __init__(self, collector: Collector, *venvs: VectorEnv) -> None:
        self._collector = collector
        self._venvs = venvs
        super().__init__()

    def lap(self, collect_s: float) -> dict[str, float]:
        policy, stepping, *busy = self._spent()
        # Shares work side by side, so the busiest one is what the step had to take.
        env = min(max(busy), stepping)
        return {"policy_s": policy, "env_s": env, "wait_s": stepping - env}

    def _counters(self) -> tuple[float, ...]:
        collector = self._collector
        busy = [busy_s for venv in self._venvs for busy_s in venv.busy_s]
        return (collector.policy_s, collector.env_s, *busy)


class WorkerMeter(Meter):
    """Copies of the policy act in the workers.

    Args:
        collector: counts the seconds that a worker spent deciding and stepping, in the mean.
        runs_ahead: whether workers go on while the learner learns; then it waits for them in
            all of its collecting.
    """

    def __init__(self, collector: Collector, runs_ahead: bool) -> None:
        self._collector = collector
        self._runs_ahead = runs_ahead
        super().__init__()

    def lap(self, collect_s: float) -> dict[str, float]:
        policy, env = self._spent()
        wait = collect_s if self._runs_ahead else max(collect_s - policy - env, 0.0)
        return {"policy_s": policy, "env_s": env, "wait_s": wait}

    def _counters(self) -> tuple[float, float]:
        return self._collector.policy_s, self._collector.env_s


class Clock:
    """Splits time among policy, envs, waiting and learning.

    Args:
        meter: knows how collecting spent its time.
        seconds: of training so far.
    """

    def __init__(self, meter: Meter, seconds: float) -> None:
        self._meter = meter
        self._start = time.perf_counter() - seconds

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
        learn_s = time.perf_counter() - collected
        collect_s = collected - began
        return {"collect_s": collect_s, **self._meter.lap(collect_s), "learn_s": learn_s}
