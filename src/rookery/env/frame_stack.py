"""FrameStack: the last few observations as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation, FrameStackObservation


@dataclass(frozen=True, slots=True)
class FrameStack:
    """Wraps an env so that it shows its last observations, the oldest first.

    Images are stacked along a new first axis, ``[frames, *image]``, and rows of numbers are laid
    side by side, ``[frames * n]``. After a reset the first one is repeated.

    Attributes:
        frames: how many.
    """

    frames: int

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Wrap ``env``."""
        space = env.observation_space
        stacked = FrameStackObservation(env, self.frames)
        is_row = isinstance(space, Box) and len(space.shape) == 1
        return FlattenObservation(stacked) if is_row else stacked
