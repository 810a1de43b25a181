"""The telemetry of a run: lines of telemetry.jsonl, a few metrics, and advice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.common.resources import memory_room
from rookery.errors import StorageError
from rookery.run.checkpoint.run_dir import cannot_write
from rookery.run.log.advice import print_advice
from rookery.run.log.clock import as_if_done
from rookery.run.log.jsonl import drop_after
from rookery.run.log.telemetry_advice import Surroundings, judged, reset_share
from rookery.vector.statistics.snapshot import CallerStatistics, Statistics, WorkerStatistics

_TIMES = ("policy_s", "env_s", "wait_s", "learn_s")


class TelemetryLog:
    """The telemetry of a run, which is measured at intervals.

    Args:
        path: path of telemetry.jsonl.
        interval_s: seconds between two lines; 0 disables telemetry.
        measure: function that returns the statistics, or None if there are none.
        resumed_at: number of env steps at which the run is resumed; None for a new run.
        surroundings: further arguments of `Surroundings`, by name.

    Raises:
        StorageError: lines after ``resumed_at`` cannot be deleted.
    """

    def __init__(
        self,
        path: Path,
        interval_s: float,
        measure: Callable[[], Statistics | None],
        resumed_at: int | None,
        surroundings: Mapping[str, Any],
    ) -> None:
        self.path = path.absolute()  # an env may change the working directory
        self._interval_s, self._measure = interval_s, measure
        self._surroundings = surroundings
        self._times: dict[str, Any] = dict.fromkeys(_TIMES, 0.0)
        self._measured_at = as_if_done(interval_s)
        self._written = resumed_at or 0  # env steps of the last line
        self._suspected: set[str] = set()  # topics that the last measurement found
        self._printed: set[str] = set()
        if resumed_at is not None and path.exists():
            drop_after(path, resumed_at)

    def look(self, steps: int, seconds: float, times: Mapping[str, float]) -> dict[str, float]:
        """Count an update; if the interval is over, write a line and print advice.

        Args:
            steps: number of env steps so far.
            seconds: seconds of training so far.
            times: seconds of the update by activity, such as ``learn_s``.

        Returns:
            Metrics if a line was written; else an empty dict.

        Raises:
            StorageError: the line cannot be written.
        """
        for name in _TIMES:
            self._times[name] += times.get(name, 0.0)
        now = time.perf_counter()
        if not self._interval_s or now - self._measured_at < self._interval_s:
            return {}
        self._measured_at = now
        statistics = self._measure()
        if statistics is None:
            return {}
        self._write(statistics, steps, seconds)
        self._advise(statistics)
        return scalars(statistics)

    def finish(self, steps: int, seconds: float) -> None:
        """Write the last line, unless there is a line of this env step."""
        if not self._interval_s or steps == self._written:
            return
        statistics = self._measure()
        if statistics is not None:
            with suppress(StorageError):  # the run is over and its results are saved
                self._write(statistics, steps, seconds)

    def _write(self, statistics: Statistics, steps: int, seconds: float) -> None:
        row = {"step": steps, "seconds": seconds, "unix_time": time.time(), **statistics.to_dict()}
        line = json.dumps(row, allow_nan=False) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise cannot_write(self.path, error) from None
        self._written = steps

    def _advise(self, statistics: Statistics) -> None:
        around = Surroundings(
            cpus=usable_cpus(),
            room=memory_room(),
            unix_time=time.time(),
            **self._surroundings,
            **self._times,
        )
        found = judged(statistics, around)
        for topic in found.keys() & self._suspected - self._printed:
            print_advice(found[topic])
            self._printed.add(topic)
        self._suspected = set(found)


def scalars(statistics: Statistics) -> dict[str, float]:
    """Return metrics from statistics, without those that are unknown."""
    envs, backends, caller = statistics.envs, statistics.workers, statistics.caller
    processes: list[CallerStatistics | WorkerStatistics] = [caller]
    processes += [backend for backend in backends if backend.rss_bytes is not None]
    slowest = [env.step_p99_s for env in envs if env.step_p99_s is not None]
    busy = [backend.busy_s for backend in backends]
    values = {
        "step_p99_s_max": max(slowest, default=None),
        "load_imbalance": max(busy) * len(busy) / sum(busy) if any(busy) else None,
        "reset_share": reset_share(envs)[0],
        "rss_bytes": sum(process.rss_bytes or 0 for process in processes) or None,
        "rss_bytes_per_hour": _sum([process.rss_bytes_per_hour for process in processes]),
        "cpu_percent": _sum([process.cpu_percent for process in processes]),
    }
    return {f"telemetry/{name}": float(v) for name, v in values.items() if v is not None}


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
