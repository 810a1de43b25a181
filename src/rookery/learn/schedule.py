"""Settings that move during training, and gradients that stay in bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def linear(start: float, final: float | None, progress: float) -> float:
    """Go linearly from ``start`` to ``final``, or stay where there is none."""
    return start if final is None else start + (final - start) * min(max(progress, 0.0), 1.0)


def clip_norm(gradient: Any, max_norm: float) -> float:
    """Scale ``gradient`` in place so that it is no longer than ``max_norm``; return its length.

    Args:
        gradient: float32 ``[size]``, an array or a tensor.
        max_norm: the greatest length.
    """
    norm = math.sqrt(gradient @ gradient)
    if norm > max_norm:
        gradient *= np.float32(max_norm / norm)
    return norm


def means(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of every metric over ``rows``, which all have the same; empty without rows."""
    if not rows:
        return {}
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
