"""Plots of benchmark results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from rookery.bench.speed_up import (
    PROCESSES,
    THREADS,
    Costs,
    Point,
    in_seconds,
    model_over_cores,
    model_over_waits,
)
from rookery.bench.synthetic import COMPUTE, WAIT
from rookery.bench.throughput import Limit, Row
from rookery.run.log.curve import new_figure, plain

_OURS, _PEERS, _LIMIT = "tab:blue", "tab:gray", "tab:green"
_BAR_INCHES, _ROOM_INCHES = 0.32, 1.3
_ASIDE = 0.05  # of a core
_ROOM = 1.45  # width of the axes relative to the longest bar, for the text behind bars


def draw_throughput(
    file: BinaryIO, title: str, rows: Sequence[Row], limits: Mapping[int, Limit]
) -> None:
    """Draw bars of env steps per second, one panel for each number of envs.

    The text behind each bar gives its speed-up over serial and its share of the limit. The limit is
    a dashed line. Error bars span all samples.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    numbers = list(dict.fromkeys(row.num_envs for row in rows))
    most = max(sum(row.num_envs == n for row in rows) for n in numbers)
    figure = new_figure((8.5, len(numbers) * (_ROOM_INCHES + _BAR_INCHES * most)))
    for place, num_envs in enumerate(numbers, 1):
        axes = figure.add_subplot(len(numbers), 1, place)
        own = [row for row in rows if row.num_envs == num_envs]
        _draw_bars(axes, own, limits.get(num_envs))
        limit = limits.get(num_envs)
        told = "" if limit is None else f" (limit {limit.steps_per_second:,.0f} steps/s)"
        axes.set_title(plain(f"{title}, {num_envs} envs{told}"), fontsize="medium", loc="left")
        axes.set_xlabel("environment steps per second", fontsize="small")
    figure.savefig(file, format="png")


def _draw_bars(axes: Any, rows: Sequence[Row], limit: Limit | None) -> None:
    rows = rows[::-1]  # the first one is on top
    medians = [row.median or 0.0 for row in rows]
    spread = [
        [m - (row.low or 0.0) for m, row in zip(medians, rows, strict=True)],
        [(row.high or 0.0) - m for m, row in zip(medians, rows, strict=True)],
    ]
    colors = [_OURS if row.contender.startswith("rookery") else _PEERS for row in rows]
    names = [row.contender for row in rows]
    axes.barh(names, medians, color=colors, alpha=0.8)
    axes.errorbar(
        medians, names, xerr=spread, fmt="none", ecolor="black", elinewidth=1, capsize=2
    )  # fmt: skip
    longest = max([*(row.high or 0.0 for row in rows), 1e-9])
    if limit is not None and limit.steps_per_second < 2 * longest:
        label = f"limit: {limit.steps_per_second:,.0f}"
        axes.axvline(limit.steps_per_second, color=_LIMIT, linestyle="--", label=label)
        axes.legend(loc="lower right", fontsize="small")
        longest = max(longest, limit.steps_per_second)
    for place, row in enumerate(rows):
        at = (row.high or 0.0) + 0.01 * longest
        axes.text(
            at, place, _remark(row), va="center", fontsize="x-small", backgroundcolor="#ffffffcc"
        )
    axes.set_xlim(0, _ROOM * longest)
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.3, axis="x")


def _remark(row: Row) -> str:
    if row.median is None:
        return plain(f"failed: {row.failure[:70]}")
    number = f"{row.median:,.0f}" if row.median >= 100 else f"{row.median:.3g}"
    parts = [number]
    if row.speed_up is not None:
        parts.append(f"{row.speed_up:.2f}x serial")
    if row.share is not None:
        parts.append(f"{row.share:.0%} of the limit")
    return ", ".join(parts)


# ---------------------------------------------------------------- speed-up


def draw_speed_up(
    file: BinaryIO, points: Sequence[Point], costs: Sequence[Costs], num_envs: int, cpus: int
) -> None:
    """Draw speed-ups: over cores for envs that compute, over step time for envs that wait.

    Measurements are points with error bars over all rounds. Predictions are dashed lines.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = new_figure((11, 4.8))
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    _draw_computing(left, points, costs, num_envs, cpus)
    _draw_waiting(right, points, costs, num_envs, cpus)
    for axes in (left, right):
        axes.set_ylabel("speed-up over serial stepping", fontsize="small")
        axes.set_ylim(0, num_envs * 1.08)
        axes.grid(alpha=0.3)
        axes.legend(loc="best", fontsize="x-small")
    figure.savefig(file, format="png")


def _draw_computing(
    axes: Any, points: Sequence[Point], costs: Sequence[Costs], num_envs: int, cpus: int
) -> None:
    for number, each in enumerate(c for c in costs if c.kind == COMPUTE):
        color = f"C{number}"
        cores, model = zip(*model_over_cores(each, num_envs), strict=True)
        label = f"model, step {in_seconds(each.step_s)}"
        axes.plot(cores, model, "--", color=color, linewidth=1.2, label=label)
        own = [p for p in points if p.kind == COMPUTE and p.asked_s == each.asked_s]
        for how, marker in ((PROCESSES, "o"), ("", "s")):
            chosen = [p for p in own if (p.place.how == PROCESSES) == (how == PROCESSES)]
            what = "in processes" if how else "in processes and the caller"
            aside = _ASIDE * (2 * number + (how != PROCESSES))  # so that points do not overlap
            _draw_points(
                axes, chosen, [p.place.at_once + aside for p in chosen], color, marker,
                f"measured, {what}" if number == 0 else None,
            )  # fmt: skip
    axes.plot([1, num_envs], [1, num_envs], color="tab:gray", linewidth=0.8, label="one per core")
    axes.axvline(cpus, color="tab:gray", linestyle=":", label=f"this machine: {cpus} cores")
    axes.set_title(f"{num_envs} envs that compute", fontsize="medium", loc="left")
    axes.set_xlabel("cores, and processes", fontsize="small")


def _draw_waiting(
    axes: Any, points: Sequence[Point], costs: Sequence[Costs], num_envs: int, cpus: int
) -> None:
    waiting = [each for each in costs if each.kind == WAIT]
    for number, how in enumerate((PROCESSES, THREADS)):
        color, marker = f"C{number}", "os"[number]
        own = [p for p in points if p.kind == WAIT and p.place.how == how]
        label = f"measured, {num_envs} {how}"
        _draw_points(axes, own, [p.step_s for p in own], color, marker, label)
        if len(waiting) > 1:
            at, model = zip(*model_over_waits(waiting, num_envs, how, cpus), strict=True)
            axes.plot(at, model, "--", color=color, linewidth=1.2, label=f"model, {how}")
    axes.axhline(num_envs, color="tab:gray", linewidth=0.8, label=f"all {num_envs} wait at once")
    axes.set_xscale("log")
    axes.set_title(f"{num_envs} envs that wait, on {cpus} cores", fontsize="medium", loc="left")
    axes.set_xlabel("seconds of a step", fontsize="small")


def _draw_points(
    axes: Any, points: Sequence[Point], at: Sequence[float], color: str, marker: str,
    label: str | None,
) -> None:  # fmt: skip
    if not points:
        return
    measured = [p.measured for p in points]
    spread = [[p.measured - p.low for p in points], [p.high - p.measured for p in points]]
    axes.errorbar(
        at, measured, yerr=spread, fmt=marker, color=color, label=label, markersize=5, capsize=3,
        linewidth=1, zorder=3,
    )  # fmt: skip
