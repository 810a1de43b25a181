"""Training time by activity: the policy, env steps, waiting and learning."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from rookery.collect.base import Collector
from rookery.vector.base import VectorEnv

_FIRST = 0.1  # share of an interval after which a periodic action happens first


def as_if_done(interval_s: float) -> float:
    """Return a time of the last execution that makes the first one due after a tenth interval."""
    return time.perf_counter() - (1 - _FIRST) * interval_s


class Meter(ABC):
    """The time of collecting by activity, from counters of the collector and its envs."""

    def __init__(self) -> None:
        self._before = self._counters()

    @abstractmethod
    def _counters(self) -> tuple[float, ...]:
        """Return the counters, in seconds."""

    def _spent(self) -> list[float]:
        """Return the growth of each counter since the last call."""
        now, before = self._counters(), self._before
        self._before = now
        return [a - b for a, b in zip(now, before, strict=True)]

    @abstractmethod
    def lap(self, collect_s: float) -> dict[str, float]:
        """Return ``policy_s``, ``env_s`` and ``wait_s`` since the last call.

        Args:
            collect_s: seconds that the caller has spent in collecting since then.
        """


class CallerMeter(Meter):
    """The meter of a collector whose policy acts in this process.

    Args:
        collector: counts the seconds of the policy and of vector steps.
        venvs: the vector envs, which count the busy seconds of their backends.
    """

    def __init__(self, collector: Collector, *venvs: VectorEnv) -> None:
        self._collector = collector
        self._venvs = venvs
        super().__init__()

    def lap(self, collect_s: float) -> dict[str, float]:
        policy, stepping, *busy = self._spent()
        # Backends step in parallel, so the busiest one determines the time of the step.
        env = min(max(busy), stepping)
        return {"policy_s": policy, "env_s": env, "wait_s": stepping - env}

    def _counters(self) -> tuple[float, ...]:
        collector = self._collector
        busy = [busy_s for venv in self._venvs for busy_s in venv.busy_s]
        return (collector.policy_s, collector.env_s, *busy)


class WorkerMeter(Meter):
    """The meter of a collector whose policy acts in the workers.

    Args:
        collector: counts the mean seconds of the policy and of env steps in a worker.
        runs_ahead: True if workers continue during learning. All time of collecting is then time
            of waiting.
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
    """The training time of a run.

    Args:
        meter: measures the time of collecting by activity.
        seconds: seconds of training before this clock was created.
    """

    def __init__(self, meter: Meter, seconds: float) -> None:
        self._meter = meter
        self._start = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """Seconds of training so far, including those before the run was resumed."""
        return time.perf_counter() - self._start

    def lap(self, began: float, collected: float) -> dict[str, float]:
        """Return the seconds of one update by activity.

        Args:
            began: ``time.perf_counter`` at the beginning of collecting.
            collected: ``time.perf_counter`` when the rollout was complete.
        """
        learn_s = time.perf_counter() - collected
        collect_s = collected - began
        return {"collect_s": collect_s, **self._meter.lap(collect_s), "learn_s": learn_s}
