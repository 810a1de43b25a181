"""Plots of measured and predicted speed-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from benchmarks.speed_up_model import (
    PROCESSES,
    THREADS,
    Costs,
    Point,
    in_seconds,
    model_over_cores,
    model_over_waits,
)
from benchmarks.synthetic import COMPUTE, WAIT
from rookery.run.log.curve import new_figure

_ASIDE = 0.05  # horizontal distance between series, in cores


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
