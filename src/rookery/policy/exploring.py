"""Policies of learners from replay: the best known action, and a way to explore around it.

How to explore lies in the model's ``exploration``, and so travels with the weights.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, num_rows
from rookery.policy.actions import ActionLayout
from rookery.policy.base import Policy, PolicyStep, SplitPolicy
from rookery.policy.held_noise import HeldNoise
from rookery.policy.network_policy import NetworkPolicy


class ExploringPolicy(Policy):
    """Acts as another policy does, and explores.

    Log probabilities and values are NaN: learners from replay read neither.

    Args:
        inner: decides; its most probable actions are the best known.

    Attributes:
        model: the weights, those of ``inner``.
        observation_space: of one env.
        layout: of the actions.
        shows_mask: whether observations tell which actions are legal.
    """

    model: Any

    def __init__(self, inner: NetworkPolicy) -> None:
        self.model = inner.model
        self.observation_space = inner.observation_space
        self.layout: ActionLayout = inner.layout
        self.shows_mask = inner.shows_mask
        self._inner = inner

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self._inner, self.version)

    @property
    def rng(self) -> np.random.Generator:
        """Draws the actions."""
        return self._inner.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self._inner.rng = rng

    @property
    def exploration(self) -> npt.NDArray[np.float64]:
        """How to explore, float64 ``[E]``."""
        exploration: npt.NDArray[np.float64] = self.model.exploration
        return exploration

    @property
    def held_noise(self) -> HeldNoise | None:
        """What is held of the noise; see `Policy`."""
        return self._inner.held_noise

    @held_noise.setter
    def held_noise(self, held: HeldNoise | None) -> None:
        self._inner.held_noise = held

    def use_stream(self, index: int) -> None:
        self._inner.use_stream(index)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        if deterministic:
            action = self._drawn(obs, True)
        else:
            action = self._explore(obs)
        unknown = np.full(len(action), np.nan, np.float32)
        return PolicyStep(action, unknown, unknown)

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        return np.full(num_rows(obs), np.nan, np.float32)

    def to_env(self, action: npt.NDArray[Any]) -> Any:
        return self._inner.to_env(action)

    @abstractmethod
    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        """Draw actions, ``[B, *action]``."""

    def _drawn(self, obs: Tree, deterministic: bool) -> npt.NDArray[Any]:
        """What the inner policy decides."""
        if isinstance(self._inner, SplitPolicy):
            return self._inner.sample(obs, deterministic)
        return self._inner.act(obs, deterministic).action


def _rebuilt(kind: type[ExploringPolicy], inner: NetworkPolicy, version: int) -> ExploringPolicy:
    policy = kind(inner)
    policy.version = version
    return policy
