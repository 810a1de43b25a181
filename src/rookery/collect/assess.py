"""What a policy gives to a rollout: actions, row by row, and values once it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from rookery.common.trees import merge_axes
from rookery.policy.base import Policy, SplitPolicy
from rookery.rollout import Rollout, Tree


def decider(policy: Policy) -> Callable[[Rollout, Any, Tree], npt.NDArray[Any]]:
    """What draws the actions ``[B, *action]`` of row t of a rollout, given its observations.

    In place of t it takes any index of ``B`` pairs of row and env. Of a policy that is not split,
    log probabilities and values are noted there.
    """
    if isinstance(policy, SplitPolicy):
        return lambda rollout, t, obs: policy.sample(obs)

    def act(rollout: Rollout, t: Any, obs: Tree) -> npt.NDArray[Any]:
        action, rollout.log_prob[t], rollout.value[t] = policy.act(obs)
        return action

    return act


def add_values(policy: Policy, rollout: Rollout) -> None:
    """Compute what the envs did not have to wait for.

    Args:
        policy: with the weights that acted.
        rollout: gets ``last_value`` and ``final_value``, and of a `SplitPolicy` also ``log_prob``
            and ``value``.
    """
    if isinstance(policy, SplitPolicy):
        log_prob, value = policy.assess(merge_axes(rollout.obs), merge_axes(rollout.action))
        rollout.log_prob[:] = log_prob.reshape(rollout.log_prob.shape)
        rollout.value[:] = value.reshape(rollout.value.shape)
    rollout.last_value[:] = policy.value(rollout.last_obs)
    rollout.final_value[:] = 0.0
    # Where a policy remembers, only its learner knows what it did remember there.
    if len(rollout.final_index) and not policy.is_recurrent:
        final_obs, t, b = rollout.cut_off()
        if len(t):
            rollout.final_value[t, b] = policy.value(final_obs)
