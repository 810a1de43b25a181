"""What is known of a rollout only once it is whole: log probabilities and values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rookery.policy.base import Policy, SplitPolicy
from rookery.rollout import Rollout, Tree
from rookery.rollout.tree import merge_axes, take


def add_values(
    policy: Policy, rollout: Rollout, final_index: npt.NDArray[np.int64], final_obs: Tree
) -> None:
    """Compute what the envs did not have to wait for.

    Args:
        policy: with the weights that acted.
        rollout: gets ``last_value`` and ``final_value``, and of a `SplitPolicy` also ``log_prob``
            and ``value``.
        final_index: int64 ``[K, 2]``, see `Rollout`.
        final_obs: ``[K, *obs]``.
    """
    if isinstance(policy, SplitPolicy):
        log_prob, value = policy.assess(merge_axes(rollout.obs), merge_axes(rollout.action))
        rollout.log_prob[:] = log_prob.reshape(rollout.log_prob.shape)
        rollout.value[:] = value.reshape(rollout.value.shape)
    rollout.last_value[:] = policy.value(rollout.last_obs)
    t, b = final_index.T
    cut = rollout.truncated[t, b] & ~rollout.terminated[t, b]
    rollout.final_value[:] = 0.0
    # Where a policy remembers, only its learner knows what it did remember there.
    if cut.any() and not policy.is_recurrent:
        rollout.final_value[t[cut], b[cut]] = policy.value(take(final_obs, cut))
