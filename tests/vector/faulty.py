"""Envs that fail on purpose."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np


class OddError(Exception):
    """An exception that cannot be built from a message alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Faulty(gym.Env[Any, Any]):
    """Counts its steps; a negative action asks for a fault."""

    observation_space = gym.spaces.Box(-1000, 1000, (2,), np.float32)
    action_space = gym.spaces.Discrete(100, start=-50)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, fail: str = "", render_mode: str | None = None) -> None:
        self.fail = fail
        self.render_mode = render_mode
        self.label = "plain"
        self._fault("make")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._fault("reset")
        self.count = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.count += 1
        if -8 < action < 0:
            {
                -1: self._raise,
                -2: lambda: os.kill(os.getpid(), signal.SIGKILL),
                -3: lambda: os._exit(3),
                -4: lambda: time.sleep(0.4),
                -5: self._raise_odd,
                -6: lambda: os.kill(os.getpid(), signal.SIGSEGV),
                -7: lambda: exit("bye"),
            }[int(action)]()
        obs = np.zeros(3, np.float32) if action == -8 else self._obs()
        return obs, 1.0, False, False, {}

    def render(self) -> Any:
        return np.full((2, 2, 3), self.count, np.uint8)

    def close(self) -> None:
        self._fault("close")

    def double(self, number: int) -> int:
        return 2 * number

    def _obs(self) -> Any:
        return np.array([self.count, 0], np.float32)

    def _fault(self, where: str) -> None:
        if self.fail == where:
            raise ValueError(f"no {where} today")

    def _raise(self) -> None:
        raise KeyError("lost key")

    def _raise_odd(self) -> None:
        raise OddError(7, "odd")
