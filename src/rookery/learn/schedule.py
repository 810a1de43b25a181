"""Settings that change during the training, and means of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rookery.errors import ConfigError, RookeryError
from rookery.learn.config_base import Scheduled


def scheduled(start: Scheduled, final: float | None, progress: float) -> float:
    """Return the present value of a setting with a schedule.

    Args:
        start: Value at the start, or a function of ``progress`` that returns the value.
        final: Value at the end, reached linearly; None keeps ``start``. Ignored for a function.
        progress: Progress of the training, clipped to [0, 1].

    Raises:
        ConfigError: the function raises, or returns something other than a number of at least 0.
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
        number = float(value)  # also of numpy and torch
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if isinstance(value, (str, bool)) or not 0.0 <= number < math.inf:
        raise ConfigError(
            f"the schedule {start!r} returned {value!r} at {progress:g}; it must return a number "
            "of at least 0"
        )
    return number


def check_schedules(config: Any) -> None:
    """Call the functions among the settings at progress 0, 0.5 and 1.

    Raises:
        ConfigError: a function raises, or returns something other than a number of at least 0.
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
    """Return the mean of every metric over ``rows``, which have equal keys; empty without rows."""
    if not rows:
        return {}
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
