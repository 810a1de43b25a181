"""Distributions of actions, and the way back through them, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.numpy.draws import normal_log_prob

Floats: TypeAlias = npt.NDArray[np.float32]

_ENTROPY = 0.5 + 0.5 * float(np.log(2.0 * np.pi))  # of a standard normal


class HeadPass(NamedTuple):
    """What a distribution says about given actions, and the way back through it.

    Attributes:
        log_prob: float32 ``[N]``.
        entropy: float32 ``[N]``.
        backward: from the gradients by both, ``[N]`` each, to those by the outputs and ``log_std``.
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

    entropy = log_std.sum() + mean.shape[1] * _ENTROPY
    return HeadPass(
        normal_log_prob(squares, log_std), np.full(len(mean), entropy, np.float32), backward
    )
