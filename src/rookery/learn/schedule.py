"""Settings that move during training, and means of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rookery.errors import ConfigError, RookeryError
from rookery.learn.config_base import Scheduled


def scheduled(start: Scheduled, final: float | None, progress: float) -> float:
    """The present value of a setting that moves.

    Args:
        start: its value at the start, or a function of ``progress`` that says all.
        final: where it goes linearly; None leaves it at ``start``.
        progress: how much of the training is done; from 0 to 1, or it is taken so.

    Raises:
        ConfigError: the function fails, or gives no number of at least 0.
    """
    progress = min(max(progress, 0.0), 1.0)
    if not callable(start):
        return start if final is None else start + (final - start) * progress
    try:
        value: Any = start(progress)
    except RookeryError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the schedule {start!r} raised {type(error).__name__} at {progress:g}: {error}"
        ) from error
    try:
        number = float(value)  # of numpy and torch, too
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if isinstance(value, (str, bool)) or not 0.0 <= number < math.inf:
        raise ConfigError(
            f"the schedule {start!r} gives {value!r} at {progress:g}, which is no number of at "
            "least 0"
        )
    return number


def check_schedules(config: Any) -> None:
    """Ask functions among the settings for their values at the beginning, amid, and at the end.

    Raises:
        ConfigError: one of them gives no number.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type != "Scheduled" or not callable(value):
            continue
        for progress in (0.0, 0.5, 1.0):
            try:
                scheduled(value, None, progress)
            except ConfigError as error:
                raise ConfigError(f"{field.name}: {error}") from error.__cause__


def means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of every metric over ``rows``, which all have the same; empty without rows."""
    if not rows:
        return {}
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
