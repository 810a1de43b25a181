"""The picture of a run's learning curve, and drawing functions that other pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra

EvaluationPoint = tuple[float, float, float]  # x, mean return, standard deviation of the returns


def draw_curve(
    file: BinaryIO,
    steps: Sequence[int],
    returns: Sequence[float],
    title: str,
    *,
    evaluations: Sequence[EvaluationPoint] = (),
    expected: float | None = None,
    expected_label: str = "expected score",
) -> None:
    """Draw episode returns over env steps, with their running mean and standard deviation.

    Returns that are not finite are left out.

    Args:
        file: file that receives the PNG picture.
        steps: env step at which each episode ended, ``[N]``, increasing.
        returns: return of each episode, ``[N]``.
        title: title above the axes.
        evaluations: env step, mean return and standard deviation of each evaluation.
        expected: return at which a horizontal line is drawn; None draws none.
        expected_label: label of that line in the legend.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = new_figure(figsize=(7, 4))
    axes = figure.add_subplot()
    at, values = np.asarray(steps, np.float64), np.asarray(returns, np.float64)
    finite = np.isfinite(values)
    _draw_episodes(axes, at[finite], values[finite])
    draw_evaluations(axes, evaluations, "tab:orange", "evaluation (mean ± std)")
    if expected is not None:
        label = plain(f"{expected_label}: {expected:g}")
        axes.axhline(expected, color="tab:green", linestyle="--", label=label)
    axes.set(title=plain(title), xlabel="environment steps", ylabel="episode return")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize="small")
    figure.savefig(file, format="png")


def _draw_episodes(
    axes: Any, steps: npt.NDArray[np.float64], returns: npt.NDArray[np.float64]
) -> None:
    if not len(returns):
        return
    window = window_for(len(returns))
    mean, std = running_mean(returns, window), running_std(returns, window)
    blue = "tab:blue"
    axes.plot(steps, returns, ".", markersize=2, alpha=0.25, color=blue, label="episode")
    axes.fill_between(steps, mean - std, mean + std, alpha=0.2, color=blue, linewidth=0)
    axes.plot(steps, mean, color=blue, label=f"running mean ± std of {window}")


def draw_evaluations(
    axes: Any, evaluations: Sequence[EvaluationPoint], color: str, label: str | None
) -> None:
    """Draw evaluations as points with error bars; those that are not finite are left out.

    Args:
        axes: matplotlib axes.
        evaluations: x, mean and standard deviation of each evaluation.
        color: color of all points.
        label: label in the legend; None adds no entry.
    """
    points = np.asarray(evaluations, np.float64).reshape(-1, 3)
    points = points[np.isfinite(points[:, :2]).all(axis=1)]
    if len(points):
        axes.errorbar(
            points[:, 0], points[:, 1], yerr=np.nan_to_num(points[:, 2]), label=label, fmt="o",
            markersize=4, capsize=3, linewidth=1, color=color, zorder=3,
        )  # fmt: skip


def new_figure(figsize: tuple[float, float]) -> Any:
    """Return an empty figure that needs no display.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("the curve picture needs: pip install 'rookery[train]'") from error
    return Figure(figsize=figsize, dpi=120, layout="constrained")


def plain(text: str) -> str:
    """Escape dollar signs, which matplotlib would read as formulas."""
    return text.replace("$", r"\$")


def window_for(count: int) -> int:
    """Return the window of the running mean of ``count`` values, 5 to 100."""
    return min(max(count // 25, 5), 100)


def running_mean(
    values: npt.NDArray[np.float64], window: int, is_centred: bool = False
) -> npt.NDArray[np.float64]:
    """Return the mean of each value and up to ``window - 1`` values before it, float64 ``[N]``.

    With ``is_centred``, half of these values come after it, so that the mean does not lag.
    """
    total = np.concatenate([[0.0], np.cumsum(values)])
    after = window // 2 if is_centred else 0
    place = np.arange(len(values))
    stop = np.minimum(place + 1 + after, len(values))
    start = np.maximum(place + 1 + after - window, 0)
    return np.asarray((total[stop] - total[start]) / (stop - start))


def running_std(
    values: npt.NDArray[np.float64], window: int, is_centred: bool = False
) -> npt.NDArray[np.float64]:
    """Return the standard deviation in the windows of `running_mean`, float64 ``[N]``."""
    centred = values - values.mean()  # squares of large values would lose their differences
    mean = running_mean(centred, window, is_centred)
    return np.sqrt(np.maximum(running_mean(centred**2, window, is_centred) - mean**2, 0.0))
