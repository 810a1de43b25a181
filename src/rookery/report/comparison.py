"""Plots that compare the curves of several runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.run.log.curve import (
    EvaluationPoint,
    draw_evaluations,
    new_figure,
    plain,
    running_mean,
    running_std,
    window_for,
)

_GRID_POINTS = 400
_LINE_STYLES = ("-", "--", ":", "-.")  # the next style is used after all colours are used
_COLORS = 10
_LINE_LETTERS = 70  # longest line of a legend, in characters
_LINES_WITHIN = 5  # longest legend, in lines, that is placed inside the axes
_LINE_INCHES = 0.2
_FEW = 25  # curves with fewer points are not smoothed


@dataclass(frozen=True)
class Curve:
    """A group of runs that is drawn as one curve.

    Attributes:
        label: name of the group in the legend.
        runs: x and y of each run: finite float64 arrays ``[N]``, N > 0, with increasing x.
        evaluations: x, mean and standard deviation of each evaluation.
    """

    label: str
    runs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]
    evaluations: Sequence[EvaluationPoint] = ()


@dataclass(frozen=True)
class Panel:
    """Axes with a title and one curve per group of runs.

    Attributes:
        title: text above the axes.
        curves: one curve per group of runs.
    """

    title: str
    curves: Sequence[Curve]


class Spread(NamedTuple):
    """Mean and standard deviation over runs, as arrays ``[G]``.

    Attributes:
        grid: x values, float64.
        mean: mean over the runs that have a value there, float64; NaN if no run has one.
        std: standard deviation over the same runs, float64; NaN if no run has a value.
        num_runs: number of runs that have a value there, int64.
    """

    grid: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    num_runs: npt.NDArray[np.int64]


def draw_comparison(
    file: BinaryIO, panels: Sequence[Panel], xlabel: str, ylabel: str, format: str = "png"
) -> None:
    """Draw the mean of each group of runs, with a band of one standard deviation over its runs.

    Where only some runs of a group have a value, the mean of these runs is drawn faintly.

    Args:
        file: file that receives the picture.
        panels: axes to draw, at least one.
        xlabel: label of the x axes.
        ylabel: label of the y axes.
        format: image format, ``"png"``, ``"pdf"`` or ``"svg"``.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    most_lines = max(map(_legend_lines, panels))
    height = 4.5 + _LINE_INCHES * (most_lines if most_lines > _LINES_WITHIN else 0)
    figure = new_figure((8.0 if columns == 1 else 6.0 * columns, height * rows))
    for place, panel in enumerate(panels, 1):
        _draw_panel(figure.add_subplot(rows, columns, place), panel, xlabel, ylabel)
    figure.savefig(file, format=format)


def _draw_panel(axes: Any, panel: Panel, xlabel: str, ylabel: str) -> None:
    for number, curve in enumerate(panel.curves):
        draw_group(axes, curve, number)
    if any(curve.evaluations for curve in panel.curves):
        label = "evaluations (mean ± std)"
        axes.errorbar([], [], yerr=[], fmt="o", markersize=4, color="gray", label=label)
    axes.set(title=plain(panel.title), xlabel=xlabel, ylabel=plain(ylabel))
    axes.grid(alpha=0.3)
    if _legend_lines(panel) > _LINES_WITHIN:  # it would hide the curves
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize="small")
    else:
        axes.legend(loc="best", fontsize="small")


def _legend_text(curve: Curve) -> str:
    """Return the wrapped label; a leading space stops matplotlib from hiding ``_`` labels."""
    text = textwrap.fill(plain(curve.label), _LINE_LETTERS)
    return f" {text}" if text.startswith("_") else text


def _legend_lines(panel: Panel) -> int:
    return sum(_legend_text(curve).count("\n") + 1 for curve in panel.curves)


def draw_group(axes: Any, curve: Curve, number: int, *, is_smoothed: bool = False) -> None:
    """Draw the mean of a group of runs, with a band of one standard deviation.

    Args:
        axes: matplotlib axes.
        curve: the group of runs.
        number: number of the group, which selects colour and line style.
        is_smoothed: draw centred running means. For a single run, the band is the standard
            deviation within the window, and the raw values are drawn faintly.
    """
    color, style = f"C{number % _COLORS}", _LINE_STYLES[number // _COLORS % len(_LINE_STYLES)]
    runs = curve.runs
    if is_smoothed:
        runs = [(x, running_mean(y, _window(len(y)), True)) for x, y in curve.runs]
    if len(runs) == 1:
        x, mean = shared_x, shared = runs[0]
        if is_smoothed:
            raw = curve.runs[0][1]
            std = running_std(raw, _window(len(raw)), True)
            axes.plot(x, raw, color=color, alpha=0.3, linewidth=0.8)
            shared_x, mean, std = thinned(x, mean, std)
            axes.fill_between(shared_x, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)
            shared = mean
    else:
        x, mean, std, num_runs = spread_of(runs)
        shared_x, shared = x, np.where(num_runs == len(runs), mean, np.nan)
        axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.2, linewidth=0)
        _draw_line(axes, x, mean, style, color=color, alpha=0.35)
    _draw_line(axes, shared_x, shared, style, color=color, label=_legend_text(curve))
    draw_evaluations(axes, curve.evaluations, color, None)


def _draw_line(axes: Any, x: Any, y: Any, style: str, **options: Any) -> None:
    """Draw a line, and a marker at each point without a neighbour."""
    is_there = np.concatenate([[False], np.isfinite(y), [False]])
    is_alone = is_there[1:-1] & ~is_there[:-2] & ~is_there[2:]
    marked = np.flatnonzero(is_alone).tolist()
    axes.plot(x, y, style, marker=".", markevery=marked, **options)


def _window(count: int) -> int:
    """Return the window of the running mean for ``count`` values; 1 for short curves."""
    return window_for(count) if count >= _FEW else 1


def thinned(*columns: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    """Select at most 400 evenly spaced values of each column, including the last one."""
    last = len(columns[0]) - 1
    chosen = np.unique(np.linspace(0, last, min(last + 1, _GRID_POINTS)).astype(np.int64))
    return [column[chosen] for column in columns]


def spread_of(
    runs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    points: int = _GRID_POINTS,
) -> Spread:
    """Return mean and standard deviation of runs, linearly interpolated on a common grid.

    Args:
        runs: x and y of each run: finite float64 arrays ``[N]``, N > 0, with increasing x.
        points: number of evenly spaced grid points, from the smallest to the largest x. The first
            and last x of each run are added to the grid.
    """
    ends = [end for x, _ in runs for end in (x[0], x[-1])]
    grid = np.union1d(np.linspace(min(ends), max(ends), points), ends)
    values = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in runs])
    num_runs = np.isfinite(values).sum(axis=0)
    some = np.maximum(num_runs, 1)
    mean = np.where(num_runs > 0, np.nansum(values, axis=0) / some, np.nan)
    std = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / some)
    return Spread(grid, mean, np.where(num_runs > 0, std, np.nan), num_runs)
