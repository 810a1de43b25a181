"""Acting with continuous actions between -1 and 1, which are stretched to the env's bounds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.policy.exploring import ExploringPolicy
from rookery.rollout.tree import Tree, num_rows


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
    """Draws from squashed normals, whose deviations are outputs of the network too: SAC."""

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
        noise = self.rng.standard_normal(action.shape, np.float32)
        return np.asarray(np.clip(action + np.float32(self.noise) * noise, -1.0, 1.0))
