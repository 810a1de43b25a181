"""Losses with their gradients, and diagnostics, as pure functions of float32 arrays ``[N]``.

Losses are means over N, and every gradient is that of the mean. Written out because the arithmetic
is short: through an autograd engine it costs 300 us per minibatch of 256, like this 40.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


class Loss(NamedTuple):
    """A scalar loss and its gradient, float32 ``[N]``, by the network's result."""

    mean: float
    gradient: Floats


def clipped_surrogate_loss(ratio: Floats, advantage: Floats, clip_range: float) -> Loss:
    """PPO's pessimistic policy loss: Schulman et al. (2017), equation 7, negated.

    ``L = -mean(min(r * A, clip(r, 1 - eps, 1 + eps) * A))``. With ``r = exp(log_prob - old)``,
    ``dr / dlog_prob = r``; where the clipped branch is the smaller one, the gradient is zero.

    Args:
        ratio: new over old probability of the actions taken.
        advantage: their advantages.
        clip_range: eps.

    Returns:
        The loss and its gradient by ``log_prob``.
    """
    surrogate = ratio * advantage
    clipped = np.clip(ratio, 1.0 - clip_range, 1.0 + clip_range) * advantage
    gradient = np.where(surrogate <= clipped, surrogate, np.float32(0))
    gradient *= np.float32(-1.0 / len(ratio))
    return Loss(-float(np.minimum(surrogate, clipped).mean()), gradient)


def policy_gradient_loss(log_prob: Floats, advantage: Floats) -> Loss:
    """The policy gradient's loss: Mnih et al. (2016), section 4, ``-mean(log_prob * A)``.

    Returns:
        The loss and its gradient by ``log_prob``.
    """
    size = len(log_prob)
    return Loss(-float(log_prob @ advantage) / size, advantage * np.float32(-1.0 / size))


def value_loss(value: Floats, returns: Floats) -> Loss:
    """Mean squared error, the L^VF of Schulman et al. (2017), equation 9.

    Returns:
        The loss and its gradient by ``value``.
    """
    error = value - returns
    return Loss(float(error @ error) / len(error), error * np.float32(2.0 / len(error)))


def clipped_value_loss(
    value: Floats, old_value: Floats, returns: Floats, clip_range: float
) -> Loss:
    """The larger error of the value and of the value kept near the old one.

    From OpenAI Baselines' PPO2; Engstrom et al. (2020), section 3. Where the kept value errs more
    and is clipped, the gradient is zero.

    Returns:
        The loss and its gradient by ``value``.
    """
    change = value - old_value
    near = old_value + np.clip(change, -clip_range, clip_range)
    error, near_error = value - returns, near - returns
    free = np.square(error) >= np.square(near_error)
    larger = np.where(free, error, near_error)
    gradient = np.where(free | (np.abs(change) <= clip_range), larger, np.float32(0))
    return Loss(float(larger @ larger) / len(larger), gradient * np.float32(2.0 / len(larger)))


def huber_loss(value: Floats, target: Floats, weight: Floats, limit: float = 1.0) -> Loss:
    """Weighted mean of a squared error whose gradient is clipped to +-``limit``.

    Huber (1964); Mnih et al. (2015), "Methods", clip the error term likewise:
    ``e^2 / 2`` where ``|e| <= limit``, else ``limit * (|e| - limit / 2)``.

    Returns:
        The loss and its gradient by ``value``.
    """
    error = value - target
    clipped = np.clip(error, -limit, limit)
    losses = clipped * (error - np.float32(0.5) * clipped)
    return Loss(float(weight @ losses) / len(error), weight * clipped / np.float32(len(error)))


def approximate_kl(log_ratio: Floats, ratio: Floats) -> float:
    """Unbiased, never negative estimate of KL(old || new): ``mean(r - 1 - log r)``.

    Schulman (2020), "Approximating KL divergence", estimator k3.
    """
    return float((ratio - log_ratio).mean()) - 1.0


def explained_variance(value: Floats, returns: Floats) -> float:
    """``1 - Var(returns - value) / Var(returns)``: 1 is perfect, 0 no better than the mean."""
    return 1.0 - float((returns - value).var()) / max(float(returns.var()), 1e-12)


def standardize(x: Floats) -> Floats:
    """Bring ``x`` to zero mean and unit deviation."""
    return np.asarray((x - x.mean()) / (x.std() + np.float32(1e-8)))
