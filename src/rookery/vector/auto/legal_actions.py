"""Random legal actions for an unknown env."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.vector.base import VectorEnv

_KEYS = (MASK_KEY, "mask")  # in infos, or in a Dict observation
_METHOD = "action_masks"  # the convention of sb3-contrib
_POOL = 32  # actions drawn in advance if all actions are legal


class LegalActions:
    """Random actions for a vector env with one env, which is reset by the constructor.

    An env can provide a mask of legal actions: in ``infos["action_mask"]``, by a method
    ``action_masks()``, or in the ``"action_mask"`` or ``"mask"`` of a Dict observation. Only legal
    actions are then drawn. If the mask does not fit the action space, none is.

    Args:
        venv: the vector env.
        heeds_masks: False ignores masks.

    Attributes:
        are_masked: the env provides a mask.
        are_unknown: ``next`` was called while no legal action was known.
    """

    def __init__(self, venv: VectorEnv, heeds_masks: bool = True) -> None:
        self._venv = venv
        self._space = venv.single_action_space
        self._space.seed(0)
        venv.action_space.seed(0)
        self.are_unknown = False
        obs, infos = venv.reset(seed=0)
        self._has_method = heeds_masks and any(venv.apply(_has_method))
        self._mask = _mask_in(obs, infos)
        self.are_masked = heeds_masks and (self._has_method or self._mask is not None)
        self._pool: list[Any] = []
        if not self.are_masked:
            self._pool = [venv.action_space.sample() for _ in range(_POOL)]
        self._drawn = 0

    def next(self) -> Any:
        """Return a batch of one action; None if no legal action is known."""
        if not self.are_masked:
            self._drawn += 1
            return self._pool[self._drawn % _POOL]
        mask = self._venv.call(_METHOD)[0] if self._has_method else self._mask
        action = sample(self._space, mask)
        self.are_unknown = self.are_unknown or action is None
        return None if action is None else np.asarray([action])

    def note(self, obs: Any, infos: Any) -> None:
        """Read the mask in the latest results of the env."""
        if self.are_masked and not self._has_method:
            self._mask = _mask_in(obs, infos)


def sample(space: gym.Space[Any], mask: Any) -> Any:
    """Return a random action that a mask allows; None if the mask does not fit the space.

    Args:
        space: action space.
        mask: for Discrete one number per action, where 0 means illegal; for MultiDiscrete the
            concatenated masks of its parts.
    """
    try:
        flags = (np.asarray(mask).astype(np.float64).ravel() != 0).astype(np.int8)
    except (TypeError, ValueError):
        return None
    if isinstance(space, gym.spaces.Discrete):
        return space.sample(flags) if flags.shape == (space.n,) and flags.any() else None
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        if len(flags) != space.nvec.sum():
            return None
        parts = np.split(flags, np.cumsum(space.nvec)[:-1])
        return space.sample(tuple(parts)) if all(part.any() for part in parts) else None
    return None


def _mask_in(obs: Any, infos: Any) -> Any:
    """Return the mask in the infos or the observation of the env; None without a mask."""
    for place in (infos, obs):
        if isinstance(place, Mapping):
            for key in _KEYS:
                if key in place and len(place[key]):
                    return place[key][0]
    return None


def _has_method(env: gym.Env[Any, Any]) -> bool:
    try:
        return callable(env.get_wrapper_attr(_METHOD))
    except AttributeError:
        return False
