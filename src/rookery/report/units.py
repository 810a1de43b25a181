"""Numbers as text with three digits, an SI prefix and a unit; a dash for unknown values."""

from __future__ import annotations

import math

UNKNOWN = "–"
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def number_text(value: float | None) -> str:
    """Return a number with three digits and an SI prefix, such as ``4.29k``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    for size, prefix in _LARGE:
        if abs(value) >= size * 0.9995:  # a value that rounds to 1000 gets the next prefix
            return f"{_three_digits(value / size)}{prefix}"
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    return _three_digits(value)


def count_text(value: float | None) -> str:
    """Return a whole number with all digits up to 9999, else as `number_text` does."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:.0f}" if abs(value) < 1e4 else number_text(value)


def interval_text(seconds: float | None) -> str:
    """Return a short time, such as ``24.3 µs``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    for size, unit in SECONDS:
        if abs(seconds) >= size * 0.9995:
            return f"{_three_digits(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{seconds:.0e} s"


def duration_text(seconds: float | None) -> str:
    """Return a long time, such as ``1:02:03`` or ``2 d 03:04``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(round(seconds), 0)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour:02}:{minute:02}"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def bytes_text(size: float | None, signed: bool = False) -> str:
    """Return an amount of memory, such as ``120 MiB``; with ``signed``, as ``+120 MiB``."""
    if size is None or not math.isfinite(size):
        return UNKNOWN
    sign = "+" if signed and size > 0 else ""
    for unit, name in _BINARY:
        if abs(size) >= unit * 0.9995:
            return f"{sign}{_three_digits(size / unit)} {name}"
    return f"{sign}{size:.0f} B"


def percent_text(share: float | None) -> str:
    """Return a share in percent, such as ``12 %``."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _three_digits(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
