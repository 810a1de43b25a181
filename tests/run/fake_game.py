"""A game in Python that is played like those of ALE, for a few frames."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LIVES, FRAMES_PER_LIFE, REWARD = 2, 20, 3.0
# FIRE and UP are pressed for four frames each, so that a life has three steps left, and a no-op
# leads from one to the next.
STEPS_PER_LIFE = 3
GAME_RETURN = LIVES * FRAMES_PER_LIFE * REWARD
GAME_LENGTH = LIVES * (2 + STEPS_PER_LIFE) + 1


class FakeGame(gym.Env[Any, Any]):
    """Gives a reward for every frame, and waits for FIRE at the beginning of each life."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}
    action_space = spaces.Discrete(3)
    observation_space = spaces.Box(0, 255, (42, 32), np.uint8)

    def __init__(
        self,
        frameskip: int = 4,
        obs_type: str = "rgb",
        render_mode: str | None = None,
        most_frames: float = float("inf"),
    ) -> None:
        self._most_frames, self._seen = most_frames, 0  # frames since the first FIRE of a game
        self._frameskip, self.obs_type, self.render_mode = frameskip, obs_type, render_mode
        self.ale = self  # what ALE's envs have an object for
        self.games, self.frames, self.left, self.is_on = 0, 0, LIVES, False

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE", "UP"]

    def lives(self) -> int:
        return self.left

    def getScreenGrayscale(self, screen: np.ndarray) -> None:
        screen[:] = self.np_random.integers(200) + self.frames

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.games += 1
        self.frames, self.left, self.is_on, self._seen = 0, LIVES, False, 0
        return np.zeros((42, 32), np.uint8), {"lives": self.left}

    def step(self, action):
        self.is_on |= action == 1
        reward = REWARD * self.is_on
        self.frames += self.is_on
        self._seen += self.is_on or self._seen > 0
        if self.frames == FRAMES_PER_LIFE:
            self.frames, self.left, self.is_on = 0, self.left - 1, False
        is_over = self.left == 0 or self._seen >= self._most_frames
        return np.zeros((42, 32), np.uint8), reward, is_over, False, {"lives": self.left}

    def render(self):
        return np.zeros((42, 32, 3), np.uint8)


class Plus(gym.Wrapper[Any, Any, Any, Any]):
    """Adds one to the reward."""

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, float(reward) + 1.0, *rest


class Times(gym.Wrapper[Any, Any, Any, Any]):
    """Makes the reward ten times as large."""

    def step(self, action):
        obs, reward, *rest = self.env.step(action)
        return obs, 10.0 * float(reward), *rest


NOT_CALLABLE = 3


class NoWrapper:
    def __init__(self, env: Any) -> None:
        self.env = env


def needs_more(env: Any, size: int) -> Any:
    return env
