"""Metrics on their way to the sinks: gathered over some updates, then written as one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rookery.telemetry.sink import Sink


class Journal:
    """Gathers metrics and writes them every ``log_steps`` env steps.

    Args:
        sinks: where lines go.
        log_steps: env steps between two lines; 0 writes one for each update.
        steps: env steps that were made before.
    """

    def __init__(self, sinks: Sequence[Sink], log_steps: int, steps: int = 0) -> None:
        self._sinks = sinks
        self._log_steps = log_steps
        self._steps = self._written = steps
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._times: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        self._now: dict[str, float] = {}

    def add(
        self,
        steps: int,
        now: dict[str, float],
        metrics: dict[str, float],
        times: dict[str, float],
        peaks: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Take in one update.

        Args:
            steps: env steps so far.
            now: metrics of which the latest values count.
            metrics: metrics of which the mean counts.
            times: seconds, of which the sum counts.
            peaks: metrics of which the largest value counts.
        """
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1
        for name, value in times.items():
            self._times[name] = self._times.get(name, 0.0) + value
        for name, value in peaks.items():
            self._peaks[name] = max(self._peaks.get(name, value), value)
        self._now, self._steps = now, steps
        if steps >= self._written + self._log_steps:
            self.flush()

    def flush(self) -> None:
        """Write what has been gathered, if anything."""
        if self._steps == self._written:
            return
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        for sink in self._sinks:
            sink.write(self._steps, {**self._now, **means, **self._peaks, **self._times})
        self._written = self._steps
        self._sums, self._counts, self._times, self._peaks = {}, {}, {}, {}

    def close(self) -> None:
        """Write the rest and close the sinks."""
        self.flush()
        for sink in self._sinks:
            sink.close()
