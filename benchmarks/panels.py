"""Pictures of several panels, one beside the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

T = TypeVar("T")


def draw_panels(
    contents: Sequence[T],
    draw_panel: Callable[[Axes, T], None],
    path: Path,
    *,
    columns: int,
    size: tuple[float, float],
) -> None:
    """Draw one panel for each of some contents and save them as one picture.

    Args:
        contents: of the panels, at least one.
        draw_panel: draws one.
        path: of the picture.
        columns: the most panels in a row.
        size: width and height of a panel in inches.
    """
    columns = min(columns, len(contents))
    rows = -(-len(contents) // columns)
    width, height = size
    figure, places = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )
    for place in places.flat[len(contents) :]:
        place.set_visible(False)
    for place, content in zip(places.flat, contents, strict=False):
        draw_panel(place, content)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def mark_plainly(axes: Axes, title: str, xlabel: str) -> None:
    """Write title and label small, and leave the frame open above and on the right."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(xlabel, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
