"""The learning curve of one run as a picture: arrays in, picture out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra

EvaluationPoint = tuple[float, float, float]  # where it was made, mean and deviation of its returns


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
    """Draw episode returns over env steps: each faintly, their running mean and deviation on top.

    Returns that are not finite are left out.

    Args:
        file: takes the PNG picture.
        steps: env steps at which each episode ended, ``[N]``, in order.
        returns: the episodes' returns, ``[N]``.
        title: above the axes.
        evaluations: env step of each evaluation, mean and standard deviation of its returns.
        expected: draw a horizontal line at this return; None draws none.
        expected_label: what the legend calls that line.

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
        axes: of matplotlib.
        evaluations: place on the x axis, mean and standard deviation of each.
        color: of all of them.
        label: in the legend; None leaves it out.
    """
    points = np.asarray(evaluations, np.float64).reshape(-1, 3)
    points = points[np.isfinite(points[:, :2]).all(axis=1)]
    if len(points):
        axes.errorbar(
            points[:, 0], points[:, 1], yerr=np.nan_to_num(points[:, 2]), label=label, fmt="o",
            markersize=4, capsize=3, linewidth=1, color=color, zorder=3,
        )  # fmt: skip


def new_figure(figsize: tuple[float, float]) -> Any:
    """Make an empty figure that needs no display.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("the curve picture needs: pip install 'rookery[train]'") from error
    return Figure(figsize=figsize, dpi=120, layout="constrained")


def plain(text: str) -> str:
    """``text`` as matplotlib shows it letter by letter: it takes dollars for formulas."""
    return text.replace("$", r"\$")


def window_for(count: int) -> int:
    """Over how many of ``count`` values a running mean is taken in pictures."""
    return min(max(count // 25, 5), 100)


def running_mean(
    values: npt.NDArray[np.float64], window: int, is_centred: bool = False
) -> npt.NDArray[np.float64]:
    """Mean of each value and up to ``window - 1`` before it, float64 ``[N]``.

    With ``is_centred`` half of them come after it, so that the mean does not lag behind.
    """
    total = np.concatenate([[0.0], np.cumsum(values)])
    after = window // 2 if is_centred else 0
    place = np.arange(len(values))
    stop = np.minimum(place + 1 + after, len(values))
    start = np.maximum(place + 1 + after - window, 0)
    return np.asarray((total[stop] - total[start]) / np.maximum(stop - start, 1))


def running_std(
    values: npt.NDArray[np.float64], window: int, is_centred: bool = False
) -> npt.NDArray[np.float64]:
    """Standard deviation of the values that `running_mean` takes together, float64 ``[N]``."""
    if not len(values):
        return np.zeros(0)
    centred = values - values.mean()  # squares of large values would swallow their differences
    mean = running_mean(centred, window, is_centred)
    return np.sqrt(np.maximum(running_mean(centred**2, window, is_centred) - mean**2, 0.0))
