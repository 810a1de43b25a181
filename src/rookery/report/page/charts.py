"""Charts as SVG markup inside an HTML page.

Text from files never becomes part of a chart: the page shows names beside it, where they are
escaped. Charts use the colours of the page, so that they follow its light or dark theme.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import numpy as np

from rookery.report.comparison import Curve, draw_group, thinned
from rookery.report.figures import Series
from rookery.report.telemetry import EnvFigures
from rookery.report.units import SECONDS, number_text
from rookery.run.log.curve import new_figure

SMALL, LARGE = (3.7, 2.1), (9.2, 3.2)  # inches

# Placeholder colours for matplotlib, and the CSS variables that replace them.
_INK, _FAINT, _COLORS = "#010203", "#010204", [f"#01030{i}" for i in range(10)]
_NAMES = {_INK: "var(--ink)", _FAINT: "var(--faint)"} | {
    color: f"var(--c{i})" for i, color in enumerate(_COLORS)
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rookery",
    "font.size": 8,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),
    "axes.formatter.useoffset": False,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "grid.color": _FAINT,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
}


def curves_chart(curves: Sequence[tuple[int, Curve]], size: tuple[float, float] = SMALL) -> str:
    """Return a chart of smoothed curves over env steps.

    Args:
        curves: number of each group, which selects its colour, and its curve.
        size: width and height in inches.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _axes(size) as (axes, svg):
        for number, curve in curves:
            draw_group(axes, curve, number, is_smoothed=True)
        axes.set_xlabel("environment steps")
        axes.set_xlim(left=0)
    return svg[0]


def memory_chart(memory: Series) -> str:
    """Return a chart of memory in MiB over seconds of training."""
    with _axes(SMALL) as (axes, svg):
        x, y = thinned(memory.x, memory.y / 2**20)
        axes.plot(x, y, color="C0", marker="." if len(x) < 2 else "")
        axes.set(xlabel="seconds of training", ylabel="MiB")
        axes.set_ylim(bottom=0, top=max(1.08 * y.max(), 1.0))
        axes.set_xlim(left=0)
    return svg[0]


def envs_chart(envs: EnvFigures) -> str:
    """Return a chart of step times per env: median to 99th percentile, and the mean."""
    times = [envs.step_p50_s, envs.step_p99_s, envs.step_mean_s]
    known = np.concatenate(times)
    known = known[np.isfinite(known)]
    most = float(known.max()) if len(known) else 1.0
    unit, name = next((each for each in SECONDS if most >= each[0]), SECONDS[-1])
    median, high, mean = (column / unit for column in times)
    places = np.arange(len(mean))
    with _axes(SMALL, has_integers=True) as (axes, svg):
        width = float(np.clip(120 / max(len(places), 1), 0.8, 5))
        axes.vlines(places, median, high, color="C0", alpha=0.45, linewidth=width)
        axes.plot(places, mean, ".", color="C0", markersize=min(width + 2, 6))
        axes.set(xlabel="env", ylabel=f"step time, {name}")
        axes.set_ylim(bottom=0)
    return svg[0]


@contextmanager
def _axes(size: tuple[float, float], has_integers: bool = False) -> Iterator[tuple[Any, list[str]]]:
    """Yield axes, and a list that receives the SVG markup on exit."""
    figure = new_figure(size)  # raises if matplotlib is missing
    import matplotlib
    from cycler import cycler
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    svg: list[str] = []
    style: Any = {**_STYLE, "axes.prop_cycle": cycler(color=_COLORS)}
    with matplotlib.rc_context(style):
        axes = figure.add_subplot()
        axes.margins(x=0.02)
        yield axes, svg
        axes.grid(axis="y")
        steps = [1, 2, 2.5, 5, 10]
        places = MaxNLocator(6 if size is SMALL else 10, steps=steps, integer=has_integers)
        axes.xaxis.set_major_locator(places)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=steps))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number_text(value)))
        file = io.BytesIO()
        figure.savefig(file, format="svg", transparent=True)
    svg.append(_within_html(file.getvalue()))


def _within_html(svg: bytes) -> str:
    """Return an SVG file as markup with unique ids, without metadata, in the page's colours."""
    prefix = f"g{zlib.crc32(svg):x}"  # equal ids only if the content is equal
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({k: _rewritten(k, v, prefix) for k, v in attributes.items()})
    box = root.get("viewBox", "0 0 1 1")
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "aria-hidden": "true"})
    return _in_page_colors(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _rewritten(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    if name == "style":
        value = re.sub(r"font(-family)?:[^;]*'[^;]*;?\s*", _font_size, value)
    return value.replace("url(#", f"url(#{prefix}-")


def _font_size(match: re.Match[str]) -> str:
    """Keep the size of a font and drop its family, which the page sets."""
    size = re.search(r"[\d.]+px", match.group())
    return f"font-size: {size.group()}; " if size else ""


def _in_page_colors(svg: str) -> str:
    return re.sub(r"#0[01]0\d0\w", lambda match: _NAMES.get(match.group(), match.group()), svg)
