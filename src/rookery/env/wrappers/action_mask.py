"""ActionMaskFromInfo: legal actions that an env tells in its infos, shown in its observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rookery.errors import SpaceError

# In an info, and in a Dict observation: the part that tells which actions are legal.
MASK_KEY = "action_mask"


class ActionMaskFromInfo(gym.Wrapper[Any, Any, Any, Any]):
    """Puts ``info["action_mask"]`` beside the observation, where policies look for it.

    Observations become ``{"obs": ..., "action_mask": int8 [n]}``; a Dict gets one key more. So the
    mask goes wherever the observation goes: to workers, into rollouts and replays, to evaluation
    and to a loaded agent. Policies of this library never draw a masked action.

    Args:
        env: its action space is Discrete or MultiDiscrete; the info of each reset and step has an
            array, true or not zero where an action is legal. A MultiDiscrete has one array for all
            components side by side, or a tuple of one for each.

    Raises:
        SpaceError: its actions cannot be masked, or its observations have such a key already.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        self._size = _num_choices(env.action_space)
        self._is_dict = isinstance(space, spaces.Dict)
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"obs": space}
        if MASK_KEY in parts:
            raise SpaceError(
                f"the observations have a part {MASK_KEY!r} already, which policies read; leave "
                "ActionMaskFromInfo out"
            )
        self.observation_space = spaces.Dict({**parts, MASK_KEY: spaces.MultiBinary(self._size)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the env; its observation shows the mask."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._shown(obs, info, is_over=False), info

    def step(self, action: Any) -> Any:
        """Step the env; its observation shows the mask."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        shown = self._shown(obs, info, is_over=bool(terminated or truncated))
        return shown, reward, terminated, truncated, info

    def _shown(self, obs: Any, info: dict[str, Any], is_over: bool) -> dict[str, Any]:
        if is_over and MASK_KEY not in info:  # nobody acts any more
            mask = np.ones(self._size, np.int8)
        else:
            mask = self._mask(info)
        return {**obs, MASK_KEY: mask} if self._is_dict else {"obs": obs, MASK_KEY: mask}

    def _mask(self, info: dict[str, Any]) -> npt.NDArray[np.int8]:
        if MASK_KEY not in info:
            raise SpaceError(f"the info has no {MASK_KEY!r}, which ActionMaskFromInfo reads")
        told = info[MASK_KEY]
        parts = told if isinstance(told, tuple) else (told,)
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
