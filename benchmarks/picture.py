"""Bars: every contender of every case of a subject; stepping as a share of the limit."""

from __future__ import annotations

import statistics
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.panels import draw_panels, mark_plainly
from benchmarks.results import CaseJson, values

_OURS, _PEERS, _LIMIT = "#1f6f8b", "#b9b9b9", "#444444"
_LABELS = {"steps_per_second": "env steps per second", "seconds": "seconds (less is better)"}


def draw(cases: list[CaseJson], path: Path) -> None:
    """Draw one panel per case and save them as one picture."""
    measured = [case for case in cases if case["contenders"]]
    draw_panels(measured, _draw_case, path, columns=2, size=(6.4, 2.9))


def _draw_case(panel: Axes, case: CaseJson) -> None:
    metric = case["metric"]
    medians = {name: statistics.median(values(case, name, metric)) for name in case["contenders"]}
    limit = medians.get("limit")
    names = list(medians)[::-1]
    heights = [medians[name] for name in names]
    bars = panel.barh(names, heights, color=[_colour(name) for name in names])
    panel.bar_label(bars, [_label(height, limit) for height in heights], padding=4, fontsize=8)
    if limit is not None:
        panel.axvline(limit, color=_LIMIT, linewidth=1, linestyle="--")
    suffix = "  (share of the limit)" if limit is not None else ""
    mark_plainly(panel, case["title"], _LABELS[metric] + suffix)
    panel.set_xlim(0, 1.25 * max(heights))


def _colour(contender: str) -> str:
    if contender == "limit":
        return _LIMIT
    return _OURS if contender.startswith("rookery") else _PEERS


def _label(height: float, limit: float | None) -> str:
    share = f"  ({height / limit:.2g})" if limit and height != limit else ""
    return (f"{height:,.0f}" if height >= 100 else f"{height:.3g}") + share
