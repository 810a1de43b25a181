"""FrameStack: a wrapper that stacks the last observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation


@dataclass(frozen=True, slots=True)
class FrameStack:
    """Wraps an env so that an observation consists of the last observations, the oldest first.

    Images are stacked along a new first axis, ``[frames, *image]``. Vectors are concatenated,
    ``[frames * n]``. Discrete spaces stay discrete. After a reset the first observation is
    repeated.

    Attributes:
        frames: number of observations.
    """

    frames: int

    def __call__(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Wrap ``env``."""
        space = env.observation_space
        stacked = FrameStackObservation(env, self.frames)
        stacked.observation_space = _with_choices(space, stacked.observation_space, self.frames)
        is_row = isinstance(space, spaces.Box) and len(space.shape) == 1
        return FlattenObservation(stacked) if is_row else stacked


def _with_choices(space: Any, stacked: Any, frames: int) -> spaces.Space[Any]:
    """Return the space of a stack with discrete parts kept. Gymnasium makes them integer boxes.

    Args:
        space: the space of one observation.
        stacked: the space of the stack, as Gymnasium defines it.
        frames: number of observations.
    """
    if isinstance(space, spaces.Dict):
        parts = {k: _with_choices(part, stacked[k], frames) for k, part in space.spaces.items()}
        return spaces.Dict(parts)
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, stacked.spaces, strict=True)
        return spaces.Tuple([_with_choices(*pair, frames) for pair in pairs])
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = (np.stack([each] * frames) for each in (space.nvec, space.start))
        return spaces.MultiDiscrete(sizes, dtype=space.dtype.type, start=starts)
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary((frames, *space.shape))
    return cast("spaces.Space[Any]", stacked)
