"""Learning curves of runs of benchmarks.learning: a panel for each env, a line for each seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from benchmarks.panels import draw_panels, mark_plainly

_OURS, _PUBLISHED = "#1f6f8b", "#444444"


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
    path.parent.mkdir(exist_ok=True)
    draw_panels(panels, _draw_panel, path, columns=3, size=(4.0, 2.8))


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for steps, returns in panel.curves:
        axes.plot(steps, returns, color=_OURS, linewidth=0.9, alpha=0.8)
    if panel.published is not None:
        axes.axhline(panel.published, color=_PUBLISHED, linewidth=1, linestyle="--")
    mark_plainly(axes, panel.title, "env steps")
    axes.set_ylabel("mean return", fontsize=8)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(left=0)
