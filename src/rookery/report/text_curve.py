"""Curves, sparklines and bars drawn with characters."""

from __future__ import annotations

import numpy as np

from rookery.report.figures import Floats

_BLOCKS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_ASCII_BLOCKS = " ..--==##"
_BRAILLE = 0x2800
_DOTS = np.array(
    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]]
)  # bits of the dots of a braille character, [4, 2]


def curve_lines(x: Floats, y: Floats, width: int, height: int, ascii_only: bool) -> list[str]:
    """Draw a line through points, as ``height`` lines of ``width`` characters.

    If several points share a column, the line covers their whole range.

    Args:
        x: finite, increasing float64 array ``[N]``, N > 0.
        y: finite float64 array ``[N]``.
        width: width in characters.
        height: height in characters.
        ascii_only: draw with stars instead of braille dots.
    """
    rows, columns = (1, 1) if ascii_only else (4, 2)
    dots = _raster(x, y, width * columns, height * rows)
    cells = dots.reshape(height, rows, width, columns)
    if ascii_only:
        return ["".join("*" if cell else " " for cell in line[0, :, 0]) for line in cells]
    codes = np.einsum("hrwc,rc->hw", cells, _DOTS)
    return ["".join(chr(_BRAILLE + int(code)) for code in line) for line in codes]


def _raster(x: Floats, y: Floats, width: int, height: int) -> np.ndarray:
    """Return an int64 array ``[height, width]`` with 1 where the line is, top row first."""
    low, high = column_range(x, y, width)
    bottom, top = float(y.min()), float(y.max())
    scale = (height - 1) / (top - bottom) if top > bottom else 0.0
    dots = np.zeros((height, width), np.int64)
    for column in np.flatnonzero(np.isfinite(low)):
        first, last = (round((edge[column] - bottom) * scale) for edge in (low, high))
        dots[height - 1 - last : height - first, column] = 1
    return dots


def column_range(x: Floats, y: Floats, width: int) -> tuple[Floats, Floats]:
    """Return the smallest and largest value of a line in each of ``width`` columns.

    Returns:
        Two float64 arrays ``[width]``. If all points share one x, all columns but the first are
        NaN.
    """
    low, high = np.full(width, np.nan), np.full(width, np.nan)
    if x[-1] == x[0]:
        low[0], high[0] = y.min(), y.max()
        return low, high
    place = (x - x[0]) / (x[-1] - x[0]) * width
    edges = np.interp(np.arange(width + 1), place, y)
    low, high = np.minimum(edges[:-1], edges[1:]), np.maximum(edges[:-1], edges[1:])
    column = np.minimum(place.astype(np.int64), width - 1)
    np.minimum.at(low, column, y)
    np.maximum.at(high, column, y)
    return low, high


def sparkline(x: Floats, y: Floats, width: int, ascii_only: bool) -> str:
    """Draw points as one line of at most ``width`` blocks, whose heights start at zero.

    Args:
        x: finite, increasing float64 array ``[N]``.
        y: finite float64 array ``[N]``; negative values count as zero.
        width: width in characters.
        ascii_only: draw with ASCII characters only.
    """
    if not len(x) or y.max() <= 0:
        return ""
    low, high = column_range(x, np.maximum(y, 0.0), width)
    middle = (low + high) / 2
    middle = middle[np.isfinite(middle)]
    signs = _ASCII_BLOCKS if ascii_only else _BLOCKS
    return "".join(signs[round(value / middle.max() * 8)] for value in middle)


def bar(share: float, width: int, ascii_only: bool) -> str:
    """Return a bar that fills ``share`` of ``width`` characters, padded to ``width``."""
    if not np.isfinite(share):
        return " " * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)  # a small share is still visible
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(width)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
