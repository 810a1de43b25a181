"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra


def draw_curve(file: BinaryIO, steps: Sequence[int], returns: Sequence[float], title: str) -> None:
    """Draw episode returns over env steps, each one faintly and their running mean on top.

    Args:
        file: takes the PNG picture.
        steps: env steps at which each episode ended.
        returns: the episodes' returns.
        title: above the axes.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("the curve picture needs: pip install 'rookery[train]'") from error
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(steps, returns, ".", markersize=2, alpha=0.25, color="tab:blue", label="episode")
    window = min(max(len(returns) // 25, 5), 100)
    smooth = running_mean(np.asarray(returns, np.float64), window)
    axes.plot(steps, smooth, color="tab:blue", label=f"mean of {window}")
    axes.set(title=title, xlabel="environment steps", ylabel="episode return")
    axes.grid(alpha=0.3)
    if len(returns):
        axes.legend(loc="best")
    figure.savefig(file, format="png")


def running_mean(values: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Mean of each value and up to ``window - 1`` before it, float64 ``[N]``."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    return np.asarray((total[stop] - total[start]) / np.maximum(stop - start, 1))
