"""Acting with continuous actions between -1 and 1, which are stretched to the env's bounds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, num_rows
from rookery.policy.exploring import ExploringPolicy
from rookery.policy.held_noise import HeldNoise

# Of Ornstein-Uhlenbeck noise: how strongly it is drawn back to zero, and the time of a step.
_THETA, _DT = 0.15, 0.01


class SquashedPolicy(ExploringPolicy):
    """Draws actions around the squashed mean, or uniformly as long as nothing was learned."""

    @property
    def is_uniform(self) -> bool:
        """Whether actions are drawn uniformly."""
        return bool(self.exploration[0])

    @is_uniform.setter
    def is_uniform(self, value: bool) -> None:
        self.exploration[0] = float(value)

    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        if not self.is_uniform:
            return self._around_mean(obs)
        rows = self.rng.uniform(-1.0, 1.0, (num_rows(obs), self.layout.num_columns))
        return self.layout.pack(rows.astype(np.float32))

    @abstractmethod
    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        """Draw actions, ``[B, *action]``."""


class SquashedGaussianPolicy(SquashedPolicy):
    """Draws from squashed normals, whose deviations depend on the observation too: SAC."""

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        return self._drawn(obs, False)


class NoisyPolicy(SquashedPolicy):
    """Adds normal noise to the squashed mean: TD3."""

    @property
    def noise(self) -> float:
        """Deviation of the noise, where actions lie between -1 and 1."""
        return float(self.exploration[1])

    @noise.setter
    def noise(self, value: float) -> None:
        self.exploration[1] = value

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        action = self._drawn(obs, True)
        return np.asarray(np.clip(action + self._next_noise(action), -1.0, 1.0))

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Draw what is added to actions ``[B, *action]``."""
        return np.float32(self.noise) * self._draw(action)

    def _draw(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Standard normal numbers, as many as actions have."""
        return self.rng.standard_normal(action.shape, np.float32)


class OrnsteinUhlenbeckPolicy(NoisyPolicy):
    """Adds noise that wanders from step to step, as Lillicrap et al. (2016) did for DDPG.

    ``x' = x - theta x dt + noise sqrt(dt) n``, with n normal, for every env apart; zero where an
    episode begins. So `noise` is not its deviation, which grows to ``noise / sqrt(2 theta)`` within
    some hundreds of steps.
    """

    follows_episodes = True

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        if self.held_noise is not None and len(self.held_noise.values) == len(env_ids):
            values, age = self.held_noise
            at = env_ids.reshape(-1, *[1] * (values.ndim - 1))
            self.held_noise = HeldNoise(np.where(at, np.float32(0), values), age)

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        held = self.held_noise
        if held is None or held.values.shape != action.shape:
            held = HeldNoise(np.zeros(action.shape, np.float32), 0)
        drawn = np.float32(self.noise * _DT**0.5) * self._draw(action)
        values = held.values * np.float32(1.0 - _THETA * _DT) + drawn
        self.held_noise = HeldNoise(values, held.age + 1)
        return values
