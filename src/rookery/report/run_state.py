"""The state of a run, derived from its files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psutil

from rookery.report.figures import RunState
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.curve import EvaluationPoint
from rookery.run.log.evaluation_log import number_of

_FRESH_S = 60.0  # a run whose files changed within this time is running, maybe on another machine


def state_of(
    folder: RunDirectory,
    settings: dict[str, Any],
    step: int | None,
    evaluations: Sequence[EvaluationPoint] = (),
    now: float | None = None,
) -> RunState:
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
            return RunState("lost", "its process died without closing the run")
        return RunState("running", "running on another machine, or killed a moment ago")
    if is_held and step is None:
        return RunState("starting", "starting: no update logged yet")
    if is_held:
        return RunState("running", "finishing: evaluating" if has_all else "running")
    if step is None:
        return RunState("stopped", "ended before its first update, or not started")
    if has_all:
        return RunState("finished", "finished: all steps made")
    return RunState("stopped", f"stopped{_reason(settings, evaluations)} before its last step")


def _reason(settings: dict[str, Any], evaluations: Sequence[EvaluationPoint]) -> str:
    goal = number_of(settings.get("stop_at"))
    if goal is not None and evaluations and evaluations[-1][1] >= goal:
        return f": an evaluation reached {goal:g},"
    return ""


def _lives(folder: RunDirectory) -> bool:
    """Return whether the process that owns the folder is alive on this machine."""
    number = folder.writer()
    try:
        began = folder.writer_file.stat().st_mtime
        # Process ids are reused; the owner is older than the file.
        process = psutil.Process(number) if number is not None else None
        is_dead = process is None or process.status() == psutil.STATUS_ZOMBIE
        return process is not None and not is_dead and process.create_time() < began + 1.0
    except (OSError, ValueError, psutil.Error):
        return False


def _is_fresh(folder: RunDirectory, now: float) -> bool:
    times = []
    for file in (folder.metrics, folder.telemetry, folder.writer_file):
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            times.append(0.0)
    return now - max(times) < _FRESH_S
