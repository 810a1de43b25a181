"""Statistics as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rookery.vector.statistics.snapshot import EnvStatistics, Statistics, WorkerStatistics

_MOST_ENVS = 32  # if there are more, those with the slowest steps

_UNKNOWN = "-"


def table_of(statistics: Statistics) -> str:
    """Return a summary, one line per worker and one line per env."""
    steps = f"{statistics.vector_steps:,} vector steps, {statistics.env_steps:,} env steps"
    waited = f"the caller waited {duration(statistics.caller.waited_s)}"
    shown = statistics.envs
    note = []
    if len(shown) > _MOST_ENVS:
        slowest = sorted(shown, key=lambda env: -(env.step_mean_s or 0.0))
        shown = tuple(slowest[:_MOST_ENVS])
        note = [f"(the {_MOST_ENVS} slowest of {len(statistics.envs)} envs)"]
    workers = [_worker_row(i, backend) for i, backend in enumerate(statistics.workers)]
    caller = statistics.caller
    where = _NODE if any(backend.node for backend in statistics.workers) else []
    for row, backend in zip(workers, statistics.workers, strict=True):
        row += [backend.node or _UNKNOWN] if where else []
    workers.append([
        "caller", _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN, size(caller.rss_bytes),
        rate(caller.rss_bytes_per_hour), percent(caller.cpu_percent), count(caller.threads),
        count(caller.descriptors), _UNKNOWN, *[_UNKNOWN for _ in where],
    ])  # fmt: skip
    lines = [
        f"{steps} in {duration(statistics.seconds)}; {waited}",
        "",
        *aligned([_WORKER_NAMES + where, *workers]),
        *_causes(statistics.workers),
        "",
        *aligned([_ENV_NAMES, *map(_env_row, shown)]),
        *note,
    ]
    return "\n".join(lines)


_WORKER_NAMES = [
    "worker", "envs", "pid", "busy", "straggler", "rss", "trend", "cpu", "threads", "descriptors",
    "restarts",
]  # fmt: skip
_NODE = ["node"]  # where workers are on several machines
_ENV_NAMES = [
    "env", "worker", "steps", "episodes", "step mean", "step p50", "step p99", "reset mean",
    "reset p99", "waiting", "straggler",
]  # fmt: skip


def _worker_row(index: int, backend: WorkerStatistics) -> list[str]:
    first, last = backend.env_ids[0], backend.env_ids[-1]
    return [
        f"{index}*" if backend.in_caller else str(index),
        str(first) if first == last else f"{first}-{last}",
        str(backend.pid),
        duration(backend.busy_s),
        share(backend.straggler_share),
        size(backend.rss_bytes),
        rate(backend.rss_bytes_per_hour),
        percent(backend.cpu_percent),
        count(backend.threads),
        count(backend.descriptors),
        str(backend.restarts),
    ]


def _causes(backends: Sequence[WorkerStatistics]) -> list[str]:
    lines = ["* stepped by the caller itself"] if any(c.in_caller for c in backends) else []
    for i, backend in enumerate(backends):
        if backend.restart_causes:
            latest = "; ".join(map(str, backend.restart_causes[-5:]))
            lines.append(f"worker {i} was replaced {backend.restarts} times, last for: {latest}")
    return lines


def _env_row(env: EnvStatistics) -> list[str]:
    return [
        str(env.env_id),
        str(env.worker),
        str(env.steps),
        str(env.episodes),
        *map(duration, (env.step_mean_s, env.step_p50_s, env.step_p99_s)),
        *map(duration, (env.reset_mean_s, env.reset_p99_s, env.wait_s)),
        share(env.straggler_share),
    ]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def duration(seconds: float | None) -> str:
    """Return seconds with a suitable unit."""
    if seconds is None:
        return _UNKNOWN
    for unit, factor in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"


def size(size_bytes: float | None) -> str:
    """Return bytes as MiB."""
    return _UNKNOWN if size_bytes is None else f"{size_bytes / 2**20:.0f} MiB"


def rate(bytes_per_hour: float | None) -> str:
    """Return bytes per hour as MiB per hour."""
    return _UNKNOWN if bytes_per_hour is None else f"{bytes_per_hour / 2**20:+.0f} MiB/h"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return _UNKNOWN if value is None else f"{100 * value:.0f} %"


def percent(value: float | None) -> str:
    """Return a percentage as text."""
    return _UNKNOWN if value is None else f"{value:.0f} %"


def count(value: int | None) -> str:
    """Return a number as text."""
    return _UNKNOWN if value is None else str(value)
