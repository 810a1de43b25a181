"""Figures of a run, computed from the lines of metrics and telemetry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rookery.report.figures import (
    EnvFigures,
    Floats,
    ProcessFigures,
    Series,
    TelemetryFigures,
    TimeSplit,
)
from rookery.run.log.evaluation_log import number_of

Row = Mapping[str, Any]

RECENT_S = 60.0  # seconds of training over which current speeds and times are taken
_FAULTS = {
    "worker_restarts": "worker restarts",
    "lost_transitions": "lost transitions",
    "nonfinite_transitions": "transitions that are not finite",
}
_TOO_LARGE = 1e150
_SKIPPED = "skipped_gradient_steps"


def series_of(rows: Sequence[Row], metric: str, over: str = "step") -> Series:
    """Return one metric over another, without values that cannot be drawn.

    Values that are not finite, or whose square overflows, are left out. If several values have the
    same ``over``, the last one is kept.
    """
    pairs = ((number_of(row.get(over)), number_of(row.get(metric))) for row in rows)
    points = {x: y for x, y in pairs if x is not None and y is not None and abs(y) < _TOO_LARGE}
    places = sorted(points)
    return Series(np.array(places, np.float64), np.array([points[x] for x in places], np.float64))


def recent(rows: Sequence[Row], span_s: float = RECENT_S) -> Sequence[Row]:
    """Return the lines of the last ``span_s`` seconds, and the line before them.

    Differences are taken from that line. The result has at least two lines if ``rows`` has.
    """
    if not rows:
        return rows
    end = number_of(rows[-1].get("seconds"))
    if end is None:
        return rows[-2:]
    place = len(rows) - 1
    while place > 0 and (number_of(rows[place].get("seconds")) or 0.0) > end - span_s:
        place -= 1
    return rows[min(place, max(len(rows) - 2, 0)) :]


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


def telemetry_figures(rows: Sequence[Row], memory: Series | None = None) -> TelemetryFigures | None:
    """Return the figures in lines of telemetry; None without lines.

    Missing or invalid values are treated as unknown.

    Args:
        rows: all lines, or the latest ones.
        memory: bytes of all processes over seconds of training; None computes it from the lines.
    """
    if not rows:
        return None
    last = rows[-1]
    earlier = recent(rows)[0] if len(rows) > 1 else None
    workers = _processes(last.get("workers"))
    before = _processes(earlier.get("workers")) if earlier is not None else []
    span = _number(last, "seconds") - (_number(earlier, "seconds") if earlier is not None else 0.0)
    processes = [_worker(i, each, before, span) for i, each in enumerate(workers)]
    busy = np.array([process.busy_share for process in processes], np.float64)
    is_known = len(busy) > 1 and bool(np.isfinite(busy).all()) and busy.mean() > 0
    caller = last.get("caller")
    if isinstance(caller, dict):
        processes.append(_process("caller", "", float("nan"), caller))
    growth = np.array([e.rss_bytes_per_hour for e in processes if not e.in_caller], np.float64)
    return TelemetryFigures(
        envs=_envs(last.get("envs")),
        processes=processes,
        memory=_memory(rows) if memory is None else memory,
        memory_per_hour=float(growth.sum()) if len(growth) else float("nan"),
        balance=float(busy.max() / busy.mean()) if is_known else float("nan"),
    )


def _worker(place: int, now: Row, before: Sequence[Row], span_s: float) -> ProcessFigures:
    """Return the figures of a worker; its busy share is that of the last ``span_s`` seconds."""
    busy = _number(now, "busy_s")
    was = _number(before[place], "busy_s") if place < len(before) else 0.0
    spent = busy - was if busy >= was else busy  # the counter restarts with the process
    share = min(spent / span_s, 1.0) if span_s > 0 else float("nan")
    node = now.get("node")  # on a cluster
    name = f"worker {place} on {node}" if isinstance(node, str) else f"worker {place}"
    return _process(name, _env_ids(now.get("env_ids")), share, now)


def _env_ids(value: Any) -> str:
    """Return the range of a worker's envs as text; empty if unknown."""
    ids = _floats(value)
    if len(ids) != 2 or np.isnan(ids).any():
        return ""
    first, last = ids.astype(np.int64).tolist()
    return f"{first}–{last}" if last > first else str(first)


def _process(name: str, envs: str, busy_share: float, row: Row) -> ProcessFigures:
    causes = row.get("restart_causes")
    restarts = number_of(row.get("restarts"))
    return ProcessFigures(
        name=name,
        envs=envs,
        busy_share=busy_share,
        **{
            key: _number(row, key)
            for key in ("cpu_percent", "rss_bytes", "rss_bytes_per_hour", "threads", "descriptors")
        },
        restarts=int(restarts or 0),
        restart_causes=[_cause(each) for each in causes] if isinstance(causes, list) else [],
        in_caller=row.get("in_caller") is True,
    )


def _cause(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _envs(value: Any) -> EnvFigures | None:
    if not isinstance(value, dict):
        return None
    columns = {name: _floats(value.get(name)) for name in EnvFigures.__dataclass_fields__}
    count = max(map(len, columns.values()))
    if not count:
        return None
    return EnvFigures(**{name: _padded(column, count) for name, column in columns.items()})


def memory_of(row: Row) -> float | None:
    """Return the total bytes of all processes; None if unknown."""
    workers = [each for each in _processes(row.get("workers")) if not each.get("in_caller")]
    known = [
        size
        for each in [*workers, *_processes([row.get("caller")])]
        if (size := number_of(each.get("rss_bytes"))) is not None
    ]
    return sum(known) if known else None


def _memory(rows: Sequence[Row]) -> Series:
    sizes = [{"seconds": row.get("seconds"), "bytes": memory_of(row)} for row in rows]
    return series_of(sizes, "bytes", "seconds")


def _processes(value: Any) -> list[Row]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _floats(value: Any) -> Floats:
    numbers = map(number_of, value) if isinstance(value, list) else ()
    return np.array([float("nan") if x is None else x for x in numbers], np.float64)


def _padded(column: Floats, count: int) -> Floats:
    return np.append(column, np.full(count - len(column), np.nan))


def _number(row: Row, name: str) -> float:
    number = number_of(row.get(name))
    return float("nan") if number is None else number


def _total(rows: Sequence[Row], name: str) -> float:
    return sum(number_of(row.get(name)) or 0.0 for row in rows)


def _difference(rows: Sequence[Row], name: str) -> float:
    first, last = (number_of(rows[place].get(name)) for place in (0, -1))
    return last - first if first is not None and last is not None else float("nan")
