"""The policy's columns of a rollout: actions row by row, and values of the complete rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from rookery.common.trees import merge_axes
from rookery.policy.base import Policy, SplitPolicy
from rookery.rollout import Rollout, Tree


def decider(policy: Policy) -> Callable[[Rollout, Any, Tree], npt.NDArray[Any]]:
    """Return a function ``(rollout, t, obs)`` that samples the actions ``[B, *action]`` of row t.

    ``t`` may also be an index of ``B`` pairs of row and env. Unless the policy is a `SplitPolicy`,
    the function also writes log probabilities and values to the rollout.
    """
    if isinstance(policy, SplitPolicy):
        return lambda rollout, t, obs: policy.sample(obs)

    def act(rollout: Rollout, t: Any, obs: Tree) -> npt.NDArray[Any]:
        action, rollout.log_prob[t], rollout.value[t] = policy.act(obs)
        return action

    return act


def add_values(policy: Policy, rollout: Rollout) -> None:
    """Compute the columns that stepping the envs does not need.

    Args:
        policy: policy with the weights that acted.
        rollout: receives ``last_value`` and ``final_value``, and from a `SplitPolicy` also
            ``log_prob`` and ``value``.
    """
    if isinstance(policy, SplitPolicy):
        log_prob, value = policy.assess(merge_axes(rollout.obs), merge_axes(rollout.action))
        rollout.log_prob[:] = log_prob.reshape(rollout.log_prob.shape)
        rollout.value[:] = value.reshape(rollout.value.shape)
    rollout.last_value[:] = policy.value(rollout.last_obs)
    rollout.final_value[:] = 0.0
    # The memory of a recurrent policy at these observations is known to its learner only.
    if len(rollout.final_index) and not policy.is_recurrent:
        final_obs, t, b = rollout.cut_off()
        if len(t):
            rollout.final_value[t, b] = policy.value(final_obs)
