"""Parts that all collectors share: act on a row, add values, read episode ends and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import copy, merge_axes
from rookery.policy.base import Policy, SplitPolicy
from rookery.rollout import Rollout, Tree
from rookery.rollout.rollout import numbers_of

_OF_FAULT = ("cause", "env_ids", "attempt")  # keys of a fault, see `worker.lifecycle`


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


def episode_ends(
    info: dict[str, Any], like: Tree, as_arrays: Callable[[Tree], Tree], keys: Sequence[str]
) -> Iterator[tuple[int, Tree, dict[str, float]]]:
    """Yield index, final observation and numbers of each episode that ended.

    Args:
        info: merged info of a step.
        like: a batch of observations with the same structure.
        as_arrays: converts an observation to its form in rollouts.
        keys: keys of the numbers to read; a missing number becomes NaN.
    """
    if "final_obs" not in info:
        return
    final_info = info.get("final_info", {})
    for place in np.flatnonzero(info["_final_obs"]).tolist():
        obs = copy(as_arrays(_of_env(info["final_obs"], place, like)))
        yield place, obs, info_numbers(final_info, place, keys)


def fault_mask(info: dict[str, Any]) -> npt.NDArray[np.bool_] | None:
    """Return a mask bool ``[N]`` of the envs with a fault in this step; None without faults.

    An env may use the keys ``fault`` or ``_fault`` itself, so this also checks the keys inside.
    """
    fault = info.get("fault")
    if not isinstance(fault, dict) or any(f"_{name}" not in fault for name in _OF_FAULT):
        return None
    mask: npt.NDArray[np.bool_] = np.logical_and.reduce([fault[f"_{name}"] for name in _OF_FAULT])
    return mask


def info_numbers(info: dict[str, Any], place: int, keys: Sequence[str]) -> dict[str, float]:
    """Return numbers of one env from a merged info; a missing number becomes NaN."""
    found = {
        key: info[key][place]
        for key in keys
        if key in info and bool(info.get(f"_{key}", np.ones(place + 1, np.bool_))[place])
    }
    return numbers_of(found, keys)


def _of_env(vectored: Any, place: int, like: Tree) -> Tree:
    """Return one env's observation from a merged info.

    A Dict observation is stored as a dict of arrays over the envs, any other as an element of an
    object array.
    """
    if isinstance(vectored, dict):
        return {key: _of_env(vectored[key], place, branch) for key, branch in like.items()}
    return vectored[place]
