"""Losses, means over N, with their gradients by what the network gives, in numpy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Loss: TypeAlias = tuple[float, Floats]


def clipped_policy(ratio: Floats, advantage: Floats, clip_range: float) -> Loss:
    """``-mean(min(r * A, clip(r, 1 - eps, 1 + eps) * A))``, and its gradient by ``log_prob``.

    With ``r = exp(log_prob - old)``, ``dr / dlog_prob = r``; where the clipped branch is the
    smaller one, the gradient is zero.
    """
    surrogate = ratio * advantage
    clipped = np.clip(ratio, 1.0 - clip_range, 1.0 + clip_range) * advantage
    gradient = np.where(surrogate <= clipped, surrogate, np.float32(0))
    gradient *= np.float32(-1.0 / len(ratio))
    return -float(np.minimum(surrogate, clipped).mean()), gradient


def policy_gradient(log_prob: Floats, advantage: Floats) -> Loss:
    """``-mean(log_prob * A)``, and its gradient by ``log_prob``."""
    size = len(log_prob)
    return -float(log_prob @ advantage) / size, advantage * np.float32(-1.0 / size)


def values(value: Floats, returns: Floats) -> Loss:
    """The mean squared error, and its gradient by ``value``."""
    error = value - returns
    return float(error @ error) / len(error), error * np.float32(2.0 / len(error))


def clipped_values(value: Floats, old_value: Floats, returns: Floats, clip_range: float) -> Loss:
    """The larger error of the value and of the value kept near the old one, and its gradient.

    Where the kept value errs more and is clipped, the gradient is zero.
    """
    change = value - old_value
    near = old_value + np.clip(change, -clip_range, clip_range)
    error, near_error = value - returns, near - returns
    free = np.square(error) >= np.square(near_error)
    larger = np.where(free, error, near_error)
    gradient = np.where(free | (np.abs(change) <= clip_range), larger, np.float32(0))
    return float(larger @ larger) / len(larger), gradient * np.float32(2.0 / len(larger))
