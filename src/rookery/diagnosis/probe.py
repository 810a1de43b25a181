"""Probe: a wrapper that watches one env from the inside, where the env lives."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np

_MOST_PROBLEMS = 3


class Probe(gym.Wrapper[Any, Any, Any, Any]):
    """Times steps and resets, and notes observations that are not in their space.

    Attributes:
        step_s: seconds of every step.
        reset_s: seconds of every reset.
        problems: what was wrong with observations, at most three.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.step_s: list[float] = []
        self.reset_s: list[float] = []
        self.problems: list[str] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset, timed."""
        started = time.perf_counter()
        obs, info = self.env.reset(**kwargs)
        self.reset_s.append(time.perf_counter() - started)
        self._look_at(obs, "reset")
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, timed."""
        started = time.perf_counter()
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.step_s.append(time.perf_counter() - started)
        self._look_at(obs, "step")
        return obs, reward, terminated, truncated, info

    def _look_at(self, obs: Any, command: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS and not self.observation_space.contains(obs):
            self.problems.append(f"{command} returned {_described(obs)}")


def _described(obs: Any) -> str:
    if isinstance(obs, np.ndarray):
        span = f", from {obs.min()} to {obs.max()}" if obs.size and obs.dtype.kind in "biuf" else ""
        return f"{obs.dtype} {list(obs.shape)}{span}"
    return f"{type(obs).__name__} {obs!r:.80}"
