"""Settings that move during training, and means of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rookery.errors import ConfigError
from rookery.learn.config_base import Scheduled


def scheduled(start: Scheduled, final: float | None, progress: float) -> float:
    """The present value of a setting that moves.

    Args:
        start: its value at the start, or a function of ``progress`` that says all.
        final: where it goes linearly; None leaves it at ``start``.
        progress: how much of the training is done; from 0 to 1, or it is taken so.

    Raises:
        ConfigError: the function gives no number.
    """
    progress = min(max(progress, 0.0), 1.0)
    if not callable(start):
        return start if final is None else start + (final - start) * progress
    value: Any = start(progress)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"the schedule {start!r} gives {value!r} at {progress:g}, not a number")
    return float(value)


def means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of every metric over ``rows``, which all have the same; empty without rows."""
    if not rows:
        return {}
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
