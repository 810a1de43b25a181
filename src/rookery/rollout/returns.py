"""Returns and advantages as pure functions of ``[T, B]`` arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]


def gae(
    reward: Floats,
    value: Floats,
    last_value: Floats,
    terminated: Flags,
    truncated: Flags,
    final_value: Floats,
    *,
    gamma: float,
    gae_lambda: float,
    valid: Flags | None = None,
) -> tuple[Floats, Floats]:
    """Generalised advantage estimation for all envs at once.

    Schulman et al. (2016), equations 11, 12 and 16: with the one-step error
    ``delta_t = r_t + gamma * v_{t+1} - v_t``, the advantage is
    ``A_t = delta_t + gamma * lambda * A_{t+1}``. Where an episode ends, the sum ends too, and
    ``v_{t+1}`` is zero after a termination and the value of the true final observation after a
    truncation (Pardo et al. 2018): the observation of the next row belongs to another episode.

    Args:
        reward: float32 ``[T, B]``.
        value: float32 ``[T, B]``, values of the observations acted on.
        last_value: float32 ``[B]``, values of the observations after the last row.
        terminated: bool ``[T, B]``.
        truncated: bool ``[T, B]``.
        final_value: float32 ``[T, B]``, read where ``truncated`` and not ``terminated``.
        gamma: discount.
        gae_lambda: lambda; 0 is the one-step error, 1 the Monte Carlo advantage.
        valid: bool ``[T, B]``. The advantage of an invalid row is zero, so the row before it
            bootstraps from the invalid row's value.

    Returns:
        Advantages and returns (``advantage + value``), float32 ``[T, B]`` each.
    """
    next_value = following_value(value, last_value, terminated, truncated, final_value)
    advantage = np.asarray(reward + gamma * next_value - value, np.float32)
    decay = np.where(terminated | truncated, 0.0, gamma * gae_lambda).astype(np.float32)
    if valid is not None:
        advantage *= valid
        decay *= valid
    for t in range(len(reward) - 2, -1, -1):
        advantage[t] += decay[t] * advantage[t + 1]
    return advantage, advantage + value


def following_value(
    value: Floats, last_value: Floats, terminated: Flags, truncated: Flags, final_value: Floats
) -> Floats:
    """Return the value after each row: zero, that of the final observation or of the next row."""
    following = np.concatenate([value[1:], last_value[None]])
    return np.where(terminated, 0.0, np.where(truncated, final_value, following))
