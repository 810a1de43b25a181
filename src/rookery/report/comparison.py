"""Several runs in one picture: arrays in, picture out."""

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
_LINE_STYLES = ("-", "--", ":", "-.")  # a line takes the next one when all colours are taken
_COLORS = 10
_LINE_LETTERS = 70  # of a legend
_LINES_WITHIN = 5  # of a legend that lies within the axes
_LINE_INCHES = 0.2
_FEW = 25  # points, of which no running mean is taken


@dataclass(frozen=True)
class Curve:
    """A group of runs, drawn as one.

    Attributes:
        label: in the legend.
        runs: x and y of each run, float64 ``[N]`` each, x increasing and all finite, N > 0.
        evaluations: place on the x axis, mean and standard deviation of each.
    """

    label: str
    runs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]
    evaluations: Sequence[EvaluationPoint] = ()


@dataclass(frozen=True)
class Panel:
    """Axes of their own.

    Attributes:
        title: above them.
        curves: in them.
    """

    title: str
    curves: Sequence[Curve]


class Spread(NamedTuple):
    """What runs have in common, float64 ``[G]`` each; NaN where there is no run.

    Attributes:
        grid: places on the x axis.
        mean: over the runs that have come so far.
        std: their standard deviation.
        num_runs: how many these are.
    """

    grid: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    num_runs: npt.NDArray[np.int64]


def draw_comparison(
    file: BinaryIO, panels: Sequence[Panel], xlabel: str, ylabel: str, format: str = "png"
) -> None:
    """Draw groups of runs: the mean of each, and the standard deviation over its runs as a band.

    Where not all runs of a group have a value, the mean of the others is drawn faintly.

    Args:
        file: takes the picture.
        panels: at least one.
        xlabel: what lies along the x axes.
        ylabel: what lies along the y axes.
        format: ``"png"``, ``"pdf"`` or ``"svg"``.

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
    """The label in lines; legends leave out what begins with an underscore."""
    text = textwrap.fill(plain(curve.label), _LINE_LETTERS)
    return f" {text}" if text.startswith("_") else text


def _legend_lines(panel: Panel) -> int:
    return sum(_legend_text(curve).count("\n") + 1 for curve in panel.curves)


def draw_group(axes: Any, curve: Curve, number: int, *, is_smoothed: bool = False) -> None:
    """Draw a group of runs into axes: their mean, and their standard deviation as a band.

    Args:
        axes: of matplotlib.
        curve: the group.
        number: decides its colour and kind of line.
        is_smoothed: take centred running means; of a single run, with the deviation in the window
            as a band, and the values themselves faintly.
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
    """Draw a line, and a point wherever one has no neighbour to be connected with."""
    is_there = np.concatenate([[False], np.isfinite(y), [False]])
    is_alone = is_there[1:-1] & ~is_there[:-2] & ~is_there[2:]
    marked = np.flatnonzero(is_alone).tolist()
    axes.plot(x, y, style, marker=".", markevery=marked, **options)


def _window(count: int) -> int:
    """Over how many of ``count`` values means are taken; few are shown as they are."""
    return window_for(count) if count >= _FEW else 1


def thinned(*columns: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    """Every so manieth value of each column, the last one included; no more than the grid has."""
    last = len(columns[0]) - 1
    chosen = np.unique(np.linspace(0, last, min(last + 1, _GRID_POINTS)).astype(np.int64))
    return [column[chosen] for column in columns]


def spread_of(
    runs: Sequence[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    points: int = _GRID_POINTS,
) -> Spread:
    """Mean and standard deviation of runs on a common grid, by straight lines between their points.

    Args:
        runs: as for `Curve`.
        points: of the grid, from the first place of any run to the last; where runs begin and end
            are places of it too.
    """
    ends = [end for x, _ in runs for end in (x[0], x[-1])]
    grid = np.union1d(np.linspace(min(ends), max(ends), points), ends)
    values = np.array([np.interp(grid, x, y, left=np.nan, right=np.nan) for x, y in runs])
    num_runs = np.isfinite(values).sum(axis=0)
    some = np.maximum(num_runs, 1)
    mean = np.where(num_runs > 0, np.nansum(values, axis=0) / some, np.nan)
    std = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / some)
    return Spread(grid, mean, np.where(num_runs > 0, std, np.nan), num_runs)
