"""MiniGrid and BabyAI: the visible grid as categories that built-in networks read.

A cell has three small integers: the kinds of object, colour and state. They are categories without
an order, so they are neither an image nor numbers. As MultiDiscrete, networks read them one-hot.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rookery.errors import ConfigError

MISSION = "mission"
_DIRECTIONS = 4
MISSION_LENGTH = 512  # the longest of BabyAI's have four clauses


class GridWithMission(gym.ObservationWrapper[Any, Any, Any]):
    """Shows the visible cells as categories, the direction, and the mission as a Text.

    The Text needs a custom encoder.

    Args:
        env: an env with Dict observations that have a part ``image``, uint8 ``[width, height, 3]``.

    Raises:
        ConfigError: the observations are different.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX
        from minigrid.wrappers import FullyObsWrapper

        space: Any = env.observation_space
        _check_shows_cells(env, space)
        # A fully visible grid includes the agent, and its state is the direction.
        is_seen = any(isinstance(each, FullyObsWrapper) for each in _links(env))
        num_states = max(len(STATE_TO_IDX), _DIRECTIONS if is_seen else 0)
        kinds = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), num_states)
        sizes = np.broadcast_to(np.array(kinds), space["image"].shape)
        image = spaces.MultiDiscrete(sizes, dtype=np.uint8)
        changed = {"image": image, MISSION: spaces.Text(MISSION_LENGTH, charset=string.printable)}
        parts = {key: changed.get(key, part) for key, part in space.spaces.items()}
        visible = {key: part for key, part in parts.items() if self._shows(key)}
        self.observation_space = spaces.Dict(visible)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of the observation that this wrapper keeps."""
        return {key: part for key, part in observation.items() if self._shows(key)}

    def _shows(self, key: str) -> bool:
        return True


class Grid(GridWithMission):
    """Shows the visible cells as categories and the direction, without the mission.

    Args:
        env: see `GridWithMission`.
    """

    def _shows(self, key: str) -> bool:
        return key != MISSION


def _links(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """Yield an env and the envs that it wraps, the outermost first."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _check_shows_cells(env: gym.Env[Any, Any], space: Any) -> None:
    """Refuse envs that have a MiniGrid name but other observations."""
    image = space.spaces.get("image") if isinstance(space, spaces.Dict) else None
    shape = () if image is None else image.shape or ()
    if len(shape) != 3 or shape[2] != 3:
        name = type(env.unwrapped).__name__ if env.spec is None else env.spec.id
        raise ConfigError(
            f"{name} shows {space}, not cells in sight as MiniGrid's envs do (a Dict with a part "
            "'image', [width, height, 3]), from which a run's preprocessing is made; give "
            "preprocess=False (--no-preprocess), and wrappers of your own where it has to be read "
            "otherwise"
        )
