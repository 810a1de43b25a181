"""VectorModel: the expected results of a vector env, from plain envs in a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate


@dataclass
class Row:
    """The result of a step or a reset of one env.

    Attributes:
        obs: the observation to return.
        reward: 0.0 after a reset.
        terminated: False after a reset.
        truncated: False after a reset.
        infos: dicts to merge into the batch's info, in this order.
    """

    obs: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False
    infos: list[dict[str, Any]] = field(default_factory=list)


class VectorModel:
    """Plain envs, stepped one after the other under Gymnasium's autoreset rules.

    If an env raises, it counts as stepped, and all other envs are stepped too.

    Args:
        env_fns: one callable per env.
        autoreset_mode: what happens when an episode ends.

    Attributes:
        envs: the envs.
        ended: for each env, True if its episode has ended and it was not reset since.
        obs: the last observation of each env.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], gym.Env[Any, Any]]], autoreset_mode: AutoresetMode
    ) -> None:
        self.env_fns = tuple(env_fns)
        self.autoreset_mode = autoreset_mode
        self.envs = [env_fn() for env_fn in env_fns]
        self.num_envs = len(self.envs)
        self.ended = [False] * self.num_envs
        self.obs: list[Any] = [None] * self.num_envs
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def step_env(self, i: int, action: Any) -> Row:
        """Step env ``i``, or reset it if the autoreset mode requires it; raise the env's error."""
        if self.ended[i] and self.autoreset_mode is AutoresetMode.NEXT_STEP:
            return self.reset_env(i)
        obs, reward, terminated, truncated, info = deepcopy(self.envs[i].step(action))
        self.ended[i] = bool(terminated or truncated)
        self.obs[i] = obs
        infos = [info]
        if self.ended[i] and self.autoreset_mode is AutoresetMode.SAME_STEP:
            first = self.reset_env(i)
            infos = [{"final_obs": obs, "final_info": info}, *first.infos]
            obs = first.obs
        return Row(obs, reward, terminated, truncated, infos)

    def reset_env(self, i: int, seed: int | None = None, options: Any = None) -> Row:
        """Reset env ``i``; raise the env's error."""
        obs, info = deepcopy(self.envs[i].reset(seed=seed, options=deepcopy(options)))
        self.ended[i] = False
        self.obs[i] = obs
        return Row(obs, infos=[info])

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Step all envs with a batch of actions, and return the result of a vector env."""
        single_actions = iterate(self.action_space, actions)
        return self.batch([self.step_env(i, a) for i, a in enumerate(single_actions)])

    def reset(
        self,
        seeds: Sequence[int | None] | None = None,
        options: Any = None,
        mask: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or the envs selected by ``mask``, bool ``[num_envs]``."""
        rows = []
        for i in range(self.num_envs):
            if mask is not None and not mask[i]:
                rows.append(Row(self.obs[i]))
                continue
            chosen = options[i] if isinstance(options, (list, tuple)) else options
            rows.append(self.reset_env(i, None if seeds is None else seeds[i], chosen))
        obs, *_, info = self.batch(rows)
        return obs, info

    def batch(self, rows: Sequence[Row]) -> tuple[Any, ...]:
        """Merge rows into obs, reward, flags and info, as a vector env returns them."""
        empty: Any = create_empty_array(self.single_observation_space, len(rows), fn=np.zeros)
        obs = concatenate(self.single_observation_space, [row.obs for row in rows], empty)
        reward = np.zeros(len(rows), np.float64)
        terminated, truncated = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        for k, row in enumerate(rows):
            reward[k], terminated[k], truncated[k] = row.reward, row.terminated, row.truncated
        return deepcopy(obs), reward, terminated, truncated, merged_infos(rows)

    def batched_actions(self, actions: Sequence[Any]) -> Any:
        """Merge single actions into a batch."""
        empty: Any = create_empty_array(self.single_action_space, len(actions), fn=np.zeros)
        return deepcopy(concatenate(self.single_action_space, list(actions), empty))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return for each env the result of its method ``name``, or its attribute ``name``."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in found)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set the attribute ``name`` of each env."""
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Close all envs."""
        for env in self.envs:
            env.close()


def merged_infos(rows: Sequence[Row]) -> dict[str, Any]:
    """Merge the rows' infos into Gymnasium's vector form, with Gymnasium's own code."""
    merger: Any = gym.vector.VectorEnv()
    merger.num_envs = len(rows)
    merged: dict[str, Any] = {}
    for k, row in enumerate(rows):
        for info in row.infos:
            merged = merger._add_info(merged, deepcopy(info), k)
    return merged
