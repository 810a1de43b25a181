"""The state of a run, and figures computed from the lines of its metrics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import psutil

from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.curve import EvaluationPoint
from rookery.run.log.jsonl import number_of

Floats = npt.NDArray[np.float64]
Row = Mapping[str, Any]

_FRESH_S = 60.0  # a run whose files changed within this time is running, maybe on another machine
_FAULTS = {
    "worker_restarts": "worker restarts",
    "lost_transitions": "lost transitions",
    "nonfinite_transitions": "transitions that are not finite",
}
_TOO_LARGE = 1e150
_SKIPPED = "skipped_gradient_steps"


@dataclass(frozen=True)
class RunStatus:
    """The state of a run: starting, running, or over.

    Attributes:
        kind: ``"starting"``: no metrics yet; ``"running"``; ``"finished"``: all steps were made;
            ``"stopped"``: the run ended normally before its last step; ``"lost"``: its process
            died without closing the run.
        text: description of the state in a few words, with the reason if known.
    """

    kind: Literal["starting", "running", "finished", "stopped", "lost"]
    text: str

    @property
    def is_over(self) -> bool:
        """True if the run writes nothing more unless it is resumed."""
        return self.kind in ("finished", "stopped", "lost")


def state_of(
    folder: RunDirectory,
    settings: dict[str, Any],
    step: int | None,
    evaluations: Sequence[EvaluationPoint] = (),
    now: float | None = None,
) -> RunStatus:
    """Return the state of a run, without locking its folder.

    Args:
        folder: folder of the run.
        settings: settings of the run, by name; uses ``total_steps`` and ``stop_at``.
        step: number of env steps in the last line of metrics; None before the first line.
        evaluations: env step, mean and standard deviation of each evaluation so far.
        now: Unix time in seconds; None reads the clock.
    """
    now = time.time() if now is None else now
    is_held = folder.writer_file.exists()
    total = number_of(settings.get("total_steps"))
    has_all = step is not None and total is not None and step >= total
    if is_held and not _lives(folder):
        if not _is_fresh(folder, now):
            return RunStatus("lost", "its process died without closing the run")
        return RunStatus("running", "running on another machine, or killed a moment ago")
    if is_held and step is None:
        return RunStatus("starting", "starting: no update logged yet")
    if is_held:
        return RunStatus("running", "finishing: evaluating" if has_all else "running")
    if step is None:
        return RunStatus("stopped", "ended before its first update, or not started")
    if has_all:
        return RunStatus("finished", "finished: all steps made")
    return RunStatus("stopped", f"stopped{_reason(settings, evaluations)} before its last step")


def _reason(settings: dict[str, Any], evaluations: Sequence[EvaluationPoint]) -> str:
    goal = number_of(settings.get("stop_at"))
    if goal is not None and evaluations and evaluations[-1][1] >= goal:
        return f": an evaluation reached {goal:g},"
    return ""


def _lives(folder: RunDirectory) -> bool:
    """Return whether the process that owns the folder is alive on this machine."""
    number = folder.writer()
    if number is None:
        return False
    try:
        began = folder.writer_file.stat().st_mtime
        process = psutil.Process(number)
        # Process ids are reused; the owner is older than the file.
        is_owner = process.create_time() < began + 1.0
        return is_owner and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, psutil.Error):
        return False


def _is_fresh(folder: RunDirectory, now: float) -> bool:
    times = []
    for file in (folder.metrics, folder.telemetry, folder.writer_file):
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            times.append(0.0)
    return now - max(times) < _FRESH_S


class Series(NamedTuple):
    """One quantity over another: finite float64 arrays ``[N]``, with increasing ``x``."""

    x: Floats
    y: Floats


@dataclass(frozen=True)
class TimeSplit:
    """Training time by activity.

    Attributes:
        seconds: total time.
        parts: seconds of each activity, in display order. Their sum is ``seconds``.
        beside: mean seconds that workers spent on each activity during the same time.
    """

    seconds: float
    parts: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)


def series_of(rows: Sequence[Row], metric: str, over: str = "step") -> Series:
    """Return one metric over another, without values that cannot be drawn.

    Values that are not finite, or whose square overflows, are left out. If several values have the
    same ``over``, the last one is kept.
    """
    pairs = ((number_of(row.get(over)), number_of(row.get(metric))) for row in rows)
    points = {x: y for x, y in pairs if x is not None and y is not None and abs(y) < _TOO_LARGE}
    places = sorted(points)
    return Series(np.array(places, np.float64), np.array([points[x] for x in places], np.float64))


def speed_over(rows: Sequence[Row]) -> float:
    """Return the env steps per second between the first and last line; NaN if unknown."""
    if len(rows) < 2:
        return float("nan")
    steps = _difference(rows, "step")
    seconds = _difference(rows, "seconds")
    return steps / seconds if seconds > 0 and steps >= 0 else float("nan")


def speeds_of(rows: Sequence[Row]) -> Series:
    """Return the env steps per second between lines, over env steps."""
    steps, seconds = series_of(rows, "seconds")
    made, took = np.diff(steps), np.diff(seconds)
    known = took > 0
    return Series(steps[1:][known], made[known] / took[known])


def time_split(rows: Sequence[Row]) -> TimeSplit | None:
    """Return the training time by activity between the first and last line.

    For a single line, the time before it is split. None if the time is unknown.
    """
    if not rows:
        return None
    counted = rows[1:] or rows
    total = _difference(rows, "seconds") if len(rows) > 1 else _total(rows, "seconds")
    names = ("collect_s", "policy_s", "env_s", "wait_s", "learn_s")
    collect, policy, env, wait, learn = (_total(counted, name) for name in names)
    rest = max(total - collect - learn, 0.0)
    total = max(total, collect + learn)
    if total <= 0 or not collect + learn:
        return None
    if policy + env + wait > 1.01 * collect:  # workers step envs during learning
        parts = {"waiting": collect, "learning": learn, "other": rest}
        return TimeSplit(total, parts, {"policy": policy, "envs": env})
    inner = max(collect - policy - env - wait, 0.0)
    parts = {"policy": policy, "envs": env, "waiting": wait, "rollouts": inner}
    return TimeSplit(total, {**parts, "learning": learn, "other": rest})


def fault_counts(rows: Sequence[Row]) -> dict[str, float]:
    """Return the count of each kind of fault that occurred, by metric.

    The result can be passed in again as a line, followed by new lines, to update the counts.
    """
    # These counts restart when the run is resumed, so the largest one is the best estimate.
    counts = {name: max(_numbers(rows, name), default=0.0) for name in _FAULTS}
    counts[_SKIPPED] = sum(_numbers(rows, _SKIPPED))
    return {name: count for name, count in counts.items() if count}


def named_faults(counts: Mapping[str, float]) -> dict[str, int]:
    """Replace the names of metrics with names for people."""
    names = {**_FAULTS, _SKIPPED: "skipped gradient steps"}
    return {names[metric]: int(np.ceil(count)) for metric, count in counts.items()}


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    return [number_of(row.get(name)) or 0.0 for row in rows if name in row]


def lag_of(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return mean and largest policy lag of the lines; None if they have none."""
    means, peaks = (series_of(rows, name).y for name in ("policy_lag_mean", "policy_lag_max"))
    return (float(means.mean()), float(peaks.max())) if len(means) and len(peaks) else None


def _total(rows: Sequence[Row], name: str) -> float:
    return sum(number_of(row.get(name)) or 0.0 for row in rows)


def _difference(rows: Sequence[Row], name: str) -> float:
    first, last = (number_of(rows[place].get(name)) for place in (0, -1))
    return last - first if first is not None and last is not None else float("nan")
