"""Action distributions and losses with their derivatives, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.numpy.draws import normal_log_prob

Floats: TypeAlias = npt.NDArray[np.float32]
Loss: TypeAlias = tuple[float, Floats]

_ENTROPY = 0.5 + 0.5 * float(np.log(2.0 * np.pi))  # of a standard normal distribution


class HeadPass(NamedTuple):
    """Forward pass of a distribution for given actions, and its backward pass.

    Attributes:
        log_prob: float32 ``[N]``, of the actions.
        entropy: float32 ``[N]``, of the distributions.
        backward: Function from the gradients of both, ``[N]`` each, to the gradients of the outputs
            and of ``log_std``.
    """

    log_prob: Floats
    entropy: Floats
    backward: Callable[[Floats, Floats], tuple[Floats, Any]]


def categorical(logits: Floats, choice: npt.NDArray[np.int64]) -> HeadPass:
    """Evaluate ``choice``, int64 ``[N]``, under softmax(``logits``), float32 ``[N, A]``."""
    log_probs = logits - logits.max(axis=1, keepdims=True)
    probs = np.exp(log_probs)
    total = probs.sum(axis=1, keepdims=True)
    probs /= total
    log_probs -= np.log(total)
    entropy = -np.einsum("na,na->n", probs, log_probs)
    rows = np.arange(len(choice))

    def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, None]:
        # d log p_c / d z_j = [j = c] - p_j;  d H / d z_j = -p_j * (log p_j + H)
        weight = (log_probs + entropy[:, None]) * d_entropy[:, None]
        weight += d_log_prob[:, None]
        weight *= -probs
        weight[rows, choice] += d_log_prob
        return weight, None

    return HeadPass(log_probs[rows, choice], entropy, backward)


def gaussian(mean: Floats, log_std: Floats, action: Floats) -> HeadPass:
    """Evaluate ``action``, float32 ``[N, K]``, under normals around ``mean``."""
    inverse_std = np.exp(-log_std)
    distance = (action - mean) * inverse_std
    squares = np.square(distance)

    def backward(d_log_prob: Floats, d_entropy: Floats) -> tuple[Floats, Floats]:
        # d log p / d mu = (a - mu) / sigma^2;  d log p / d log sigma = ((a - mu) / sigma)^2 - 1
        d_mean = distance * inverse_std * d_log_prob[:, None]
        return d_mean, d_log_prob @ (squares - 1.0) + d_entropy.sum()

    entropy = np.full(len(mean), log_std.sum() + mean.shape[1] * _ENTROPY, np.float32)
    return HeadPass(normal_log_prob(squares, log_std), entropy, backward)


# ---------------------------------------------------------------- losses, means over N


def clipped_policy(ratio: Floats, advantage: Floats, clip_range: float) -> Loss:
    """Return ``-mean(min(r * A, clip(r, 1 - eps, 1 + eps) * A))`` and its gradient by ``log_prob``.

    With ``r = exp(log_prob - old)``, ``dr / dlog_prob = r``. Where the clipped branch is smaller,
    the gradient is zero.
    """
    surrogate = ratio * advantage
    clipped = np.clip(ratio, 1.0 - clip_range, 1.0 + clip_range) * advantage
    gradient = np.where(surrogate <= clipped, surrogate, np.float32(0))
    gradient *= np.float32(-1.0 / len(ratio))
    return -float(np.minimum(surrogate, clipped).mean()), gradient


def policy_gradient(log_prob: Floats, advantage: Floats) -> Loss:
    """Return ``-mean(log_prob * A)`` and its gradient by ``log_prob``."""
    size = len(log_prob)
    return -float(log_prob @ advantage) / size, advantage * np.float32(-1.0 / size)


def values(value: Floats, returns: Floats) -> Loss:
    """Return the mean squared error and its gradient by ``value``."""
    error = value - returns
    return float(error @ error) / len(error), error * np.float32(2.0 / len(error))


def clipped_values(value: Floats, old_value: Floats, returns: Floats, clip_range: float) -> Loss:
    """Return the mean of the larger squared error of value and clipped value, and its gradient.

    Where the clipped value has the larger error and is out of range, the gradient is zero.
    """
    change = value - old_value
    near = old_value + np.clip(change, -clip_range, clip_range)
    error, near_error = value - returns, near - returns
    free = np.square(error) >= np.square(near_error)
    larger = np.where(free, error, near_error)
    gradient = np.where(free | (np.abs(change) <= clip_range), larger, np.float32(0))
    return float(larger @ larger) / len(larger), gradient * np.float32(2.0 / len(larger))
