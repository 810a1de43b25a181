"""A run that is watched while it trains; its files are only read."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from rookery.errors import ConfigError, StorageError
from rookery.report.figures import (
    Row,
    RunStatus,
    Series,
    TimeSplit,
    fault_counts,
    lag_of,
    named_faults,
    series_of,
    speed_over,
    speeds_of,
    state_of,
    time_split,
)
from rookery.report.read import all_evaluations, folder_of_run, settings_of
from rookery.report.telemetry import Recent, TelemetryFigures, TelemetrySoFar, Thinned
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.curve import EvaluationPoint
from rookery.run.log.jsonl import LineFollower, evaluations_in, number_of

_SILENT_S = 60.0  # a note is shown after this time without a line of metrics
NO_SERIES = Series(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class RunFigures:
    """All figures of a run at one moment.

    Attributes:
        path: folder of the run.
        title: env, algorithm and seed.
        state: state of the run.
        step: number of env steps so far.
        total_steps: number of env steps of the whole run; None if unknown.
        seconds: training time so far.
        left_s: estimated remaining seconds; None if unknown.
        age_s: seconds since the last line of metrics; None before the first line.
        speed: recent env steps per second; NaN before the second line.
        speed_mean: mean env steps per second since training began.
        speeds: env steps per second between lines, over env steps.
        returns: mean return of recent episodes, over env steps.
        episodes: number of ended episodes.
        evaluations: env step, mean and standard deviation of each evaluation.
        time_split: recent training time by activity; None before the first line.
        faults: count of each kind of fault that occurred.
        lag: mean and largest policy lag; None if the collector has no policy lag.
        telemetry: statistics from telemetry.jsonl; None if the file has no line.
        notes: further warnings, one sentence each.
    """

    path: str
    title: str
    state: RunStatus
    step: int = 0
    total_steps: int | None = None
    seconds: float = 0.0
    left_s: float | None = None
    age_s: float | None = None
    speed: float = float("nan")
    speed_mean: float = float("nan")
    speeds: Series = NO_SERIES
    returns: Series = NO_SERIES
    episodes: int = 0
    evaluations: Sequence[EvaluationPoint] = ()
    time_split: TimeSplit | None = None
    faults: Mapping[str, int] = field(default_factory=dict)
    lag: tuple[float, float] | None = None
    telemetry: TelemetryFigures | None = None
    notes: Sequence[str] = ()


class LiveRun:
    """A reader that follows the files of a run.

    Args:
        path: folder of the run. It may still lack all files but that of the writing process.

    Raises:
        ConfigError: the folder does not contain a run.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self._env = path.name
        self._settings: dict[str, Any] = {}
        try:
            is_taken = RunDirectory(path).writer() is not None
            self._folder = RunDirectory(path) if is_taken else folder_of_run(path)
            if self._folder.config.is_file():
                self._env, self._settings = settings_of(self._folder)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
        self._metrics = _Followed(self._folder.metrics, MetricsSoFar)
        self._telemetry = _Followed(self._folder.telemetry, TelemetrySoFar)
        self._evaluations = _Followed(self._folder.evaluations, EvaluationsSoFar)

    def figures(self, now: float | None = None) -> RunFigures:
        """Read the new lines and return the current figures.

        Args:
            now: Unix time in seconds; None reads the clock.

        Raises:
            StorageError: the folder was moved or deleted, or a file cannot be read.
        """
        now = time.time() if now is None else now
        self._read()
        metrics = self._metrics.so_far
        rows, latest = metrics.rows(), metrics.recent.rows()
        step = number_of(rows[-1].get("step")) if rows else None
        evaluations = all_evaluations(self._evaluations.so_far.points, metrics.evaluations)
        state = state_of(
            self._folder, self._settings, None if step is None else int(step), evaluations, now
        )
        total = number_of(self._settings.get("total_steps"))
        speed = speed_over(latest)
        age_s = self._age_s(now) if rows else None
        is_going_on = state.kind == "running" and total is not None and speed > 0
        left_s = max(total - (step or 0), 0) / speed if is_going_on and total is not None else None
        last = rows[-1] if rows else {}
        seconds, speed_mean = (
            number_of(last.get(name)) for name in ("seconds", "steps_per_second")
        )
        return RunFigures(
            path=str(self._folder.path),
            title=self._title(),
            state=state,
            step=int(step or 0),
            total_steps=None if total is None else int(total),
            seconds=seconds or 0.0,
            left_s=left_s,
            age_s=age_s,
            speed=speed,
            speed_mean=float("nan") if speed_mean is None else speed_mean,
            speeds=speeds_of(rows),
            returns=series_of(rows, "episode_return_mean"),
            episodes=int(number_of(last.get("episodes")) or 0),
            evaluations=evaluations,
            time_split=time_split(latest),
            faults=named_faults(metrics.faults),
            lag=lag_of(latest),
            telemetry=self._telemetry.so_far.figures(),
            notes=self._notes(state, age_s),
        )

    def _read(self) -> None:
        if not os.path.isdir(self._folder.path):
            raise StorageError(f"{self._folder.path} was moved or deleted while it was watched")
        try:
            for followed in self._all():
                followed.read()
        except OSError as error:
            path = error.filename or self._folder.path
            raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
        # config.json is missing briefly while a run is overwritten.
        with contextlib.suppress(ConfigError):
            self._env, self._settings = settings_of(self._folder)

    def _title(self) -> str:
        algo, seed = self._settings.get("algo"), self._settings.get("seed")
        words = [self._env, algo, None if seed is None else f"seed {seed}"]
        return "  ".join(str(word) for word in words if word is not None)

    def _age_s(self, now: float) -> float | None:
        """Return the seconds since metrics were last written."""
        try:
            return max(now - self._folder.metrics.stat().st_mtime, 0.0)
        except OSError:
            return None

    def _notes(self, state: RunStatus, age_s: float | None) -> list[str]:
        notes = []
        if self._metrics.lines.restarts:
            notes.append("The run was resumed or restarted while it was watched.")
        if state.kind == "running" and age_s is not None and age_s > _SILENT_S:
            notes.append(f"No metrics were written for {age_s:.0f} seconds.")
        return notes + [
            f"{each.path.name}: {each.damaged} damaged lines were skipped."
            for each in (followed.lines for followed in self._all())
            if each.damaged
        ]

    def _all(self) -> tuple[_Followed[Any], ...]:
        return self._metrics, self._telemetry, self._evaluations


class SoFar(Protocol):
    """A consumer of lines."""

    def add(self, row: Row) -> None:
        """Process the next line."""


class MetricsSoFar:
    """A bounded history of metrics.jsonl.

    Attributes:
        recent: the latest lines.
        faults: count of faults by metric.
        evaluations: env step, mean and standard deviation of each evaluation in the metrics.
    """

    def __init__(self) -> None:
        self.recent = Recent()
        self.faults: dict[str, float] = {}
        self.evaluations: list[tuple[int, float, float]] = []
        self._curves: Thinned[Row] = Thinned()

    def add(self, row: Row) -> None:
        """Process the next line."""
        self.recent.add(row)
        self._curves.add(row)
        self.faults = fault_counts([self.faults, row])
        self.evaluations += evaluations_in([row])

    def rows(self) -> list[Row]:
        """Return a thinned list of lines, for curves."""
        return self._curves.items()


class EvaluationsSoFar:
    """The content of evaluations.jsonl.

    Attributes:
        points: env step, mean and standard deviation of each evaluation.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, float, float]] = []

    def add(self, row: Row) -> None:
        """Process the next line."""
        self.points += evaluations_in([row])


S = TypeVar("S", bound=SoFar)


class _Followed(Generic[S]):
    """A file that is followed, with the history of its lines.

    Args:
        path: path of the file.
        make: function that makes an empty history; called again if the file was replaced.

    Attributes:
        lines: reader of the file.
        so_far: history of the lines.
    """

    def __init__(self, path: Path, make: Callable[[], S]) -> None:
        self.lines = LineFollower(path)
        self._make, self.so_far = make, make()
        self._restarts = 0

    def read(self) -> None:
        """Read the new lines.

        Raises:
            OSError: the file cannot be read.
        """
        for row in self.lines.read():
            self._begin_anew_if_needed()
            self.so_far.add(row)
        self._begin_anew_if_needed()

    def _begin_anew_if_needed(self) -> None:
        if self.lines.restarts != self._restarts:
            self.so_far, self._restarts = self._make(), self.lines.restarts
