"""The plot of throughput against the number of envs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from rookery.run.log.curve import new_figure, plain


@dataclass(frozen=True)
class ThroughputPoint:
    """The measured throughput of a candidate.

    Attributes:
        num_envs: number of envs.
        rate: env steps per second.
        low: 10th percentile of the rate.
        high: 90th percentile of the rate.
        label: description of the mode.
        is_best: True for the fastest mode with this number of envs.
    """

    num_envs: int
    rate: float
    low: float
    high: float
    label: str
    is_best: bool = False


def draw_throughput(
    file: BinaryIO,
    points: Sequence[ThroughputPoint],
    title: str,
    knee: int | None = None,
    format: str = "png",
) -> None:
    """Plot throughput against the number of envs: each mode as points, the best as a line.

    Args:
        file: file that receives the picture.
        points: points to draw, at least one.
        title: text above the axes.
        knee: number of envs to mark; None for no mark.
        format: image format, ``"png"``, ``"pdf"`` or ``"svg"``.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = new_figure((8, 4.5))
    axes = figure.add_subplot()
    for number, label in enumerate(dict.fromkeys(point.label for point in points)):
        own = sorted((p for p in points if p.label == label), key=lambda p: p.num_envs)
        axes.plot(
            [p.num_envs for p in own], [p.rate for p in own], marker="o", markersize=4,
            linestyle=":", linewidth=1, color=f"C{number % 10}", label=plain(label),
        )  # fmt: skip
    best = sorted((p for p in points if p.is_best), key=lambda p: p.num_envs)
    _draw_best(axes, best)
    marked = next((p for p in best if p.num_envs == knee), None)
    if marked is not None:
        label = f"knee: {marked.num_envs} envs, {marked.rate:,.0f} steps/s"
        axes.axvline(marked.num_envs, color="gray", linestyle="--", linewidth=1, label=label)
        axes.plot(marked.num_envs, marked.rate, "s", color="black", markersize=7, zorder=4)
    counts = sorted({p.num_envs for p in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    axes.set(title=plain(title), xlabel="envs", ylabel="env steps per second")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(file, format=format)


def _draw_best(axes: Any, best: Sequence[ThroughputPoint]) -> None:
    """Draw the fastest mode of each number of envs, with its spread."""
    if not best:
        return
    counts = [p.num_envs for p in best]
    axes.plot(counts, [p.rate for p in best], color="black", linewidth=1.8, label="best, 10-90 %")
    axes.fill_between(
        counts, [p.low for p in best], [p.high for p in best], color="black", alpha=0.12,
        linewidth=0,
    )  # fmt: skip
