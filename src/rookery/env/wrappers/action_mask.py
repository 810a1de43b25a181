"""ActionMaskFromInfo: copies the mask of legal actions from infos into observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rookery.errors import SpaceError

# The key of the mask of legal actions, in infos and in Dict observations.
MASK_KEY = "action_mask"


class ActionMaskFromInfo(gym.Wrapper[Any, Any, Any, Any]):
    """Copies ``info["action_mask"]`` into the observation, where policies read it.

    Observations become ``{"obs": ..., "action_mask": int8 [n]}``. A Dict observation gets an
    additional key. So the mask is available wherever the observation is: in workers, rollouts,
    replays, evaluations and loaded agents. Policies of this library never draw a masked action.

    Args:
        env: an env with a Discrete or MultiDiscrete action space. The info of each reset and step
            has an array that is true or not zero for legal actions. For MultiDiscrete it is the
            concatenation of all components, or a tuple with one array per component.

    Raises:
        SpaceError: the action space cannot be masked, or the observations already have the key.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        self._size = _num_choices(env.action_space)
        self._is_dict = isinstance(space, spaces.Dict)
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        if MASK_KEY in parts:
            raise SpaceError(
                f"the observations already have a part {MASK_KEY!r}, which policies read; remove "
                "ActionMaskFromInfo"
            )
        self.observation_space = spaces.Dict({**parts, MASK_KEY: spaces.MultiBinary(self._size)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the env and add the mask to its observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._with_mask(obs, info, is_over=False), info

    def step(self, action: Any) -> Any:
        """Step the env and add the mask to its observation."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        masked = self._with_mask(obs, info, is_over=bool(terminated or truncated))
        return masked, reward, terminated, truncated, info

    def _with_mask(self, obs: Any, info: dict[str, Any], is_over: bool) -> dict[str, Any]:
        if is_over and MASK_KEY not in info:  # no action follows
            mask = np.ones(self._size, np.int8)
        else:
            mask = self._mask(info)
        return {**obs, MASK_KEY: mask} if self._is_dict else {"obs": obs, MASK_KEY: mask}

    def _mask(self, info: dict[str, Any]) -> npt.NDArray[np.int8]:
        if MASK_KEY not in info:
            raise SpaceError(f"the info has no {MASK_KEY!r}, which ActionMaskFromInfo reads")
        given = info[MASK_KEY]
        parts = given if isinstance(given, tuple) else (given,)
        mask = np.concatenate([np.asarray(part).ravel() != 0 for part in parts])
        if len(mask) != self._size:
            raise SpaceError(
                f"info[{MASK_KEY!r}] has {len(mask)} numbers, but action_space "
                f"{self.env.action_space} has {self._size} choices"
            )
        return mask.astype(np.int8)


def _num_choices(space: spaces.Space[Any]) -> int:
    match space:
        case spaces.Discrete():
            return int(space.n)
        case spaces.MultiDiscrete():
            return int(np.sum(space.nvec))
    raise SpaceError(f"only Discrete and MultiDiscrete actions can be masked, not {space}")
