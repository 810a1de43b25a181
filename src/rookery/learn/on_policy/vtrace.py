"""V-trace: value targets and advantages for experience of an older policy; pure functions."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.rollout.returns import following_value

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]


class VTrace(NamedTuple):
    """What V-trace makes of a rollout.

    Attributes:
        target: float32 ``[T, B]``, ``v_t``: what the value should be.
        advantage: float32 ``[T, B]``, the factor of the policy gradient; zero in invalid rows.
    """

    target: Floats
    advantage: Floats


def vtrace(
    log_ratio: Floats,
    reward: Floats,
    value: Floats,
    last_value: Floats,
    terminated: Flags,
    truncated: Flags,
    final_value: Floats,
    *,
    gamma: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    trace_lambda: float = 1.0,
    valid: Flags | None = None,
) -> VTrace:
    """Correct for the difference between the policy that acted and the one that learns.

    Espeholt et al. (2018), "IMPALA", section 4.1. With ``rho_t = min(rho_clip, pi / mu)`` and
    ``c_t = lambda * min(c_clip, pi / mu)`` (their remark 2), equation 1 in its recursive form
    (remark 1) is::

        v_t - V_t = rho_t * (r_t + gamma * V_{t+1} - V_t) + gamma * c_t * (v_{t+1} - V_{t+1})

    and the policy gradient of section 4.2 has the factor ``rho_t * (r_t + gamma * v_{t+1} - V_t)``.
    Under the policy that acted (``log_ratio`` zero) targets are n-step returns. Where an episode
    ends, ``V_{t+1}`` and ``v_{t+1}`` are zero after a termination and ``final_value`` after a
    truncation, and nothing is carried over from the next row, which is of another episode.

    Args:
        log_ratio: float32 ``[T, B]``, ``log pi - log mu`` of the actions taken, ``pi`` the policy
            that learns and ``mu`` the one that acted.
        reward: float32 ``[T, B]``.
        value: float32 ``[T, B]``, present values of the observations acted on.
        last_value: float32 ``[B]``, present values of the observations after the last row.
        terminated: bool ``[T, B]``.
        truncated: bool ``[T, B]``.
        final_value: float32 ``[T, B]``, read where ``truncated`` and not ``terminated``.
        gamma: discount.
        rho_clip: decides which policy's value is learned; infinite means that of ``pi``.
        c_clip: decides how far corrections reach back.
        trace_lambda: lambda; 0 takes one step into account.
        valid: bool ``[T, B]``; an invalid row's target is its value, so that the row before it
            bootstraps from that.

    Returns:
        Targets and advantages.
    """
    ratio = np.exp(log_ratio)
    rho = np.minimum(rho_clip, ratio)
    decay = gamma * trace_lambda * np.minimum(c_clip, ratio)
    decay = np.where(terminated | truncated, 0.0, decay)
    if valid is not None:
        rho, decay = np.where(valid, rho, 0.0), np.where(valid, decay, 0.0)
    next_value = following_value(value, last_value, terminated, truncated, final_value)
    correction = np.asarray(rho * (reward + gamma * next_value - value), np.float32)
    for t in range(len(reward) - 2, -1, -1):
        correction[t] += decay[t] * correction[t + 1]
    target = value + correction
    next_target = following_value(target, last_value, terminated, truncated, final_value)
    advantage = rho * (reward + gamma * next_target - value)
    return VTrace(np.asarray(target, np.float32), np.asarray(advantage, np.float32))
