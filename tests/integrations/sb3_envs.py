"""Envs that show what a Stable-Baselines3 VecEnv must carry over."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Walk(gym.Env[Any, Any]):
    """A random walk of ``length`` steps; then it terminates, or is truncated, or both at once."""

    observation_space: gym.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    render_mode = "rgb_array"

    def __init__(self, length: int = 3, end: str = "truncated") -> None:
        self.length = length
        self.end = end
        self.options_seen: list[Any] = []
        self.seeds_seen: list[Any] = []
        self.unlucky = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds_seen.append(seed)
        self.options_seen.append(options)
        self.count = 0
        self.position = self.np_random.normal()
        return self._obs(), {"start": self.position}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.unlucky:
            raise KeyError("no luck")
        self.count += 1
        self.position += float(action) - 1 + self.np_random.normal()
        over = self.count == self.length
        terminated = over and self.end in ("terminated", "both")
        truncated = over and self.end in ("truncated", "both")
        return self._obs(), self.position / 3, terminated, truncated, {"position": self.position}

    def render(self) -> Any:
        return np.full((8, 8, 3), self.count, np.uint8)

    def scaled(self, factor: float, offset: float = 0.0) -> float:
        return factor * self.length + offset

    def _obs(self) -> Any:
        return np.array([self.position, self.count], np.float32)


class ThriftyWalk(Walk):
    """Returns the same observation and the same info at every step, changed."""

    def __init__(self) -> None:
        super().__init__()
        self._same_obs = np.zeros(2, np.float32)
        self._same_info: dict[str, Any] = {"position": np.zeros(())}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        *result, info = super().step(action)
        self._same_info["position"][...] = info["position"]
        return (*result, self._same_info)  # type: ignore[return-value]

    def _obs(self) -> Any:
        self._same_obs[...] = super()._obs()
        return self._same_obs


class DictWalk(Walk):
    """Its observation is a dict of a vector and a small image."""

    observation_space = spaces.Dict(
        {
            "vector": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "image": spaces.Box(0, 255, (36, 36, 1), np.uint8),
        }
    )

    def _obs(self) -> Any:
        return {"vector": super()._obs(), "image": np.full((36, 36, 1), self.count, np.uint8)}


class TupleWalk(Walk):
    """Observations and actions are tuples."""

    observation_space = spaces.Tuple((Walk.observation_space, spaces.Discrete(10)))
    action_space: gym.Space[Any] = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2)))  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return super().step(action[0] + action[1].sum())

    def _obs(self) -> Any:
        return super()._obs(), self.count


class NestedWalk(Walk):
    """Its observation is a dict inside a dict."""

    observation_space = spaces.Dict({"outer": spaces.Dict({"inner": Walk.observation_space})})

    def _obs(self) -> Any:
        return {"outer": {"inner": super()._obs()}}


class ImageWalk(Walk):
    """Its observation is an image with the channels last."""

    observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def _obs(self) -> Any:
        return np.full((36, 36, 3), self.count, np.uint8)


class OldReset(Walk):
    """Its ``reset`` knows no options, which Stable-Baselines3 never needs it to."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return super().reset(seed=seed)


class Compiled(Walk):
    """Nobody can read the signature of its ``reset``, as that of compiled code."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return super().reset(seed=seed, options=options)

    reset.__signature__ = "unknown"  # type: ignore[attr-defined]


class Holder(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that changes nothing."""
