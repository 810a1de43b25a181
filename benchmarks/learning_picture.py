"""Learning curves of runs of benchmarks.learning: a panel for each env, a line for each seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

_OURS, _PUBLISHED = "#1f6f8b", "#444444"
_COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """The curves of one preset.

    Attributes:
        title: of the panel.
        curves: env steps and mean returns of each run.
        published: the mean return that was published; None if there is none.
    """

    title: str
    curves: Sequence[tuple[Sequence[float], Sequence[float]]]
    published: float | None


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Draw one panel beside the other and save them as one picture."""
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.0 * columns, 2.8 * rows), squeeze=False, layout="constrained"
    )
    for place in axes.flat[len(panels) :]:
        place.set_visible(False)
    for place, panel in zip(axes.flat, panels, strict=False):
        _draw_panel(place, panel)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for steps, returns in panel.curves:
        axes.plot(steps, returns, color=_OURS, linewidth=0.9, alpha=0.8)
    if panel.published is not None:
        axes.axhline(panel.published, color=_PUBLISHED, linewidth=1, linestyle="--")
    axes.set_title(panel.title, fontsize=10, loc="left")
    axes.set_xlabel("env steps", fontsize=8)
    axes.set_ylabel("mean return", fontsize=8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
