"""Native vector envs for tests: honest ones, and some that lie."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space


class Counting(gym.vector.VectorEnv[Any, Any, Any]):
    """Episodes of ``3 + i`` steps in env i; observations are (seed, steps); resets no env itself.

    An action of 7 raises. Infos have no masks, as those of ALE.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}
    single_observation_space = gym.spaces.Box(-1, 2**31, (2,), np.int64)
    single_action_space = gym.spaces.Discrete(8)
    speed = 1

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.obs = np.zeros((num_envs, 2), np.int64)  # handed out, and written to again
        self.seeds_came: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.seeds_came.append(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        seeds = np.arange(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        for k, i in enumerate(np.flatnonzero(mask)):
            self.obs[i] = (-1 if seeds is None else seeds[k], 0)
        return self.obs, self.infos()

    def step(self, actions: Any) -> Any:
        if 7 in actions:
            raise ArithmeticError("seven")
        self.obs[:, 1] += self.speed
        ended = self.obs[:, 1] >= 3 + np.arange(self.num_envs)
        reward = self.obs[:, 1].astype(np.float32)
        return self.obs, reward, ended, np.zeros_like(ended), self.infos()

    def infos(self) -> dict[str, Any]:
        return {
            "steps": self.obs[:, 1].astype(np.int32),
            "even": self.obs[:, 1] % 2 == 0,
            "names": [f"env {i}" for i in range(self.num_envs)],
            "nested": {"twice": self.obs[:, 1] * 2},
            "version": "1.0",
        }


class Arrayed(Counting):
    """Takes seeds as an int or as an array, as ALE does."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None and not isinstance(seed, (int, np.ndarray)):
            raise TypeError("Unsupported seed type")
        return super().reset(seed=seed, options=options)


class Maskless(Counting):
    """Resets all its envs, whatever the mask says."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


class Lying(Counting):
    """A native batch that returns results outside of its spaces; ``lie`` selects them."""

    def __init__(self, num_envs: int, lie: str) -> None:
        super().__init__(num_envs + (lie == "num_envs"))
        self.lie = lie
        if lie == "mode":
            self.metadata = {}
        if lie == "text":
            self.single_observation_space = gym.spaces.Text(5)  # type: ignore[assignment]
        if lie == "batch":
            self.observation_space = batch_space(self.single_observation_space, num_envs + 1)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        result = super().reset(seed=seed, options=options)
        return result[0] if self.lie == "reset" else result

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if self.lie == "rows":
            obs = obs[1:]
        if self.lie == "dtype":
            obs = obs.astype(np.float64)
        if self.lie == "reward":
            reward = reward[:1]
        if self.lie == "flags":
            terminated = terminated.astype(np.float64)
        if self.lie == "info":
            info = {"steps": np.zeros(self.num_envs + 1)}
        if self.lie == "no dict":
            info = None
        return (obs, reward, terminated, truncated, info)[: 4 if self.lie == "four" else 5]


class SameStep(Counting):
    """Says that it resets within the step, and returns no final observation."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}


class Stacked(Counting):
    """Resets within the step, and returns final observations stacked and without a mask."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if terminated.any():
            info["final_obs"] = obs.copy()
            obs[terminated, 1] = 0
        return obs, reward, terminated, truncated, info
