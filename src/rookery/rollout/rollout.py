"""Rollout: the experience of ``B`` envs in ``T`` steps, as arrays ``[T, B, ...]``."""

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

    Row ``[t, b]`` holds the observation ``obs`` of env b, the ``action`` taken, and the resulting
    ``reward`` and flags. A column holds consecutive episodes of one env.

    Attributes:
        obs: array ``[T, B, *obs]`` in the env's own dtype, or dicts and tuples of such arrays.
        action: ``[T, B, *action]``, as sampled by the policy, before clipping to the env's bounds;
            for a Dict or Tuple space ``[T, B, K]``, its parts concatenated.
        reward: float32 ``[T, B]``, as returned by the env.
        terminated: bool ``[T, B]``.
        truncated: bool ``[T, B]``.
        valid: bool ``[T, B]``. False marks rows that must not be learned from: the step that
            only resets an env in next_step autoreset mode, and transitions cut off by a fault.
        log_prob: float32 ``[T, B]``, log probability of ``action`` when it was sampled.
        value: float32 ``[T, B]``, the policy's value of ``obs``.
        last_obs: the observations after the last step, ``[B, *obs]``.
        last_value: float32 ``[B]``, the value of ``last_obs``.
        final_obs: ``[K, *obs]``, the true last observations of the K episodes that ended.
        final_index: int64 ``[K, 2]``, the ``(t, b)`` of each of them, in order of t.
        final_info: maps each of the collector's ``info_keys`` to float64 ``[K]``: numbers from the
            infos of the K episode ends, NaN if an info has no such number.
        final_value: float32 ``[T, B]``, the value of the true final observation where an
            episode was truncated; zero elsewhere, and zero everywhere for a recurrent policy.
        policy_version: int64 ``[B]``, the version of the weights that acted.
        memory: float32 ``[B, M]``, memory of a recurrent policy before the first row; None for
            other policies.
        env_ids: int64 ``[B]``, index of the env of each column.
        after_reset: bool ``[B]``, True if the env was reset from outside before the first row. The
            column then does not continue the last episode of the previous rollout.
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
        """Allocate arrays for ``num_steps`` steps of envs with such ``obs`` and ``action``.

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
        """Number of steps of every env, T."""
        return len(self.reward)

    @property
    def num_envs(self) -> int:
        """Number of envs, B."""
        return len(self.policy_version)

    @property
    def num_transitions(self) -> int:
        """Number of env steps, valid or not, ``T * B``."""
        return self.num_steps * self.num_envs

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Mask bool ``[T, B]`` of transitions that were terminated or truncated."""
        return self.terminated | self.truncated

    def cut_off(self) -> tuple[Tree, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the episodes that were truncated but not terminated.

        Returns:
            Their true final observations, ``[C, *obs]``, and their t and b, int64 ``[C]`` each.
        """
        t, b = self.final_index.T
        cut = self.truncated[t, b] & ~self.terminated[t, b]
        return take(self.final_obs, cut), t[cut], b[cut]

    def torch(self) -> Rollout:
        """Return the rollout with tensors that share the memory of its arrays.

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
