"""One rollout: what ``B`` envs experienced in ``T`` steps, laid out as ``[T, B, ...]``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, stack, take, tree_map, zeros_rows
from rookery.errors import MissingExtra


@dataclass(slots=True)
class Rollout:
    """Experience of B envs over T steps.

    Row ``[t, b]`` says: env b showed ``obs``, got ``action``, and answered with ``reward`` and the
    two flags. Episodes follow one another down a column.

    Attributes:
        obs: array ``[T, B, *obs]`` in the env's own dtype, or dicts and tuples of such arrays.
        action: ``[T, B, *action]``, as the policy drew it (before clipping to the env's bounds); of
            a Dict or Tuple space rows ``[T, B, K]``, its parts side by side.
        reward: float32 ``[T, B]``, as the env gave it.
        terminated: bool ``[T, B]``.
        truncated: bool ``[T, B]``.
        valid: bool ``[T, B]``. False marks rows that must not be learned from: the step that
            only resets an env in next_step autoreset mode, and transitions cut off by a fault.
        log_prob: float32 ``[T, B]``, log probability of ``action`` when it was drawn.
        value: float32 ``[T, B]``, the policy's value of ``obs``.
        last_obs: the observations after the last step, ``[B, *obs]``.
        last_value: float32 ``[B]``, the value of ``last_obs``.
        final_obs: ``[K, *obs]``, the true last observations of the K episodes that ended.
        final_index: int64 ``[K, 2]``, the ``(t, b)`` of each of them, in order of t.
        final_info: by name, float64 ``[K]``: numbers out of the infos with which the K episodes
            ended, NaN where an info held none; only those that the collector was asked for.
        final_value: float32 ``[T, B]``, the value of the true final observation where an
            episode was truncated; elsewhere, and where the policy is recurrent, zero.
        policy_version: int64 ``[B]``, the version of the weights that acted.
        memory: float32 ``[B, M]``, what a recurrent policy remembered before the first row; None
            where the policy remembers nothing.
        env_ids: int64 ``[B]``, which env each column is of.
        after_reset: bool ``[B]``, whether the env was reset from outside before the first row, so
            that this does not go on with the episode of the rollout before, which has no end.
    """

    obs: Tree
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    valid: npt.NDArray[np.bool_]
    log_prob: npt.NDArray[np.float32]
    value: npt.NDArray[np.float32]
    last_obs: Tree
    last_value: npt.NDArray[np.float32]
    final_obs: Tree
    final_index: npt.NDArray[np.int64]
    final_value: npt.NDArray[np.float32]
    policy_version: npt.NDArray[np.int64]
    env_ids: npt.NDArray[np.int64]
    after_reset: npt.NDArray[np.bool_]
    memory: npt.NDArray[np.float32] | None = None
    final_info: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def allocate(cls, num_steps: int, obs: Tree, action: npt.NDArray[Any]) -> Rollout:
        """Make storage for ``num_steps`` steps of envs that show ``obs`` and take ``action``.

        Args:
            num_steps: steps of every env, ``T``.
            obs: one batch of observations ``[B, *obs]``; only shapes and dtypes are read.
            action: one batch of actions ``[B, *action]``; only shape and dtype are read.
        """
        num_envs = len(action)
        shape = (num_steps, num_envs)
        return cls(
            obs=zeros_rows(num_steps, obs),
            action=zeros_rows(num_steps, action),
            reward=np.zeros(shape, np.float32),
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            valid=np.ones(shape, np.bool_),
            log_prob=np.zeros(shape, np.float32),
            value=np.zeros(shape, np.float32),
            last_obs=obs,
            last_value=np.zeros(num_envs, np.float32),
            final_obs=stack([], obs),
            final_index=np.zeros((0, 2), np.int64),
            final_value=np.zeros(shape, np.float32),
            policy_version=np.zeros(num_envs, np.int64),
            env_ids=np.arange(num_envs),
            after_reset=np.zeros(num_envs, np.bool_),
        )

    @property
    def num_steps(self) -> int:
        """T, the steps of every env."""
        return len(self.reward)

    @property
    def num_envs(self) -> int:
        """B, the number of envs."""
        return len(self.policy_version)

    @property
    def num_transitions(self) -> int:
        """The env steps that the rollout cost, valid or not, ``T * B``."""
        return self.num_steps * self.num_envs

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """bool ``[T, B]``: the episode ended with this transition, either way."""
        return self.terminated | self.truncated

    def cut_off(self) -> tuple[Tree, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Episodes that were truncated and not terminated: a value stands in for their rest.

        Returns:
            Their true final observations, ``[C, *obs]``, and the t and b of each, int64 ``[C]``.
        """
        t, b = self.final_index.T
        cut = self.truncated[t, b] & ~self.terminated[t, b]
        return take(self.final_obs, cut), t[cut], b[cut]

    def torch(self) -> Rollout:
        """The same rollout with tensors in place of the arrays, over the same memory.

        Raises:
            MissingExtra: torch is not installed.
        """
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("tensors need torch: pip install 'rookery[train]'") from error
        tensors: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            tensors[each.name] = None if value is None else tree_map(torch.from_numpy, value)
        return Rollout(**tensors)
