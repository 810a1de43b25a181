"""Envs that count; apart from all that workers have no use for, which takes them long to import."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

LARGE = 1  # an action that is answered with an info that fits into no pipe
LARGE_BYTES = 600_000


class Counting(gym.Env[Any, Any]):
    """Shows how many steps its episode has, and in which episode it is."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.label = "none"
        self.steps = self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.episodes += 1
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        info = {"frame": np.full(LARGE_BYTES, self.steps, np.uint8)} if action == LARGE else {}
        return self._obs(), 1.0, False, False, info

    def double(self, number: int) -> int:
        return 2 * number

    def _obs(self) -> Any:
        return np.array([self.steps, self.episodes], np.float64)
