"""Acting with continuous actions between -1 and 1, which are stretched to the env's bounds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.policy.draws import Draws
from rookery.policy.outputs_policy import OutputsPolicy

_NO_LOG_STD = np.empty(0, np.float32)


class SquashedPolicy(OutputsPolicy):
    """Acts on the outputs of a `SquashedActor`; its deterministic action is the squashed mean."""

    @property
    def is_uniform(self) -> bool:
        """Whether actions are drawn uniformly instead, as in a warm-up."""
        return bool(self.exploration[0])

    @is_uniform.setter
    def is_uniform(self, value: bool) -> None:
        self.exploration[0] = float(value)

    def _choose(
        self,
        outputs: npt.NDArray[np.float32],
        deterministic: bool,
        mask: npt.NDArray[np.bool_] | None,
    ) -> npt.NDArray[Any]:
        draws = Draws(self.layout, outputs, _NO_LOG_STD)
        if deterministic:
            return draws.mode()
        if self.is_uniform:
            shape = len(outputs), self.layout.num_columns
            return self.rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        return self._explore(draws)

    @abstractmethod
    def _explore(self, draws: Draws) -> npt.NDArray[Any]:
        """Draw actions, ``[N, K]``."""


class SquashedGaussianPolicy(SquashedPolicy):
    """Draws from the squashed normals: SAC."""

    def _explore(self, draws: Draws) -> npt.NDArray[Any]:
        return draws.sample(self.rng)


class NoisyPolicy(SquashedPolicy):
    """Adds normal noise to the deterministic action: TD3."""

    @property
    def noise(self) -> float:
        """Deviation of the noise; it travels with the weights."""
        return float(self.exploration[1])

    @noise.setter
    def noise(self, value: float) -> None:
        self.exploration[1] = value

    def _explore(self, draws: Draws) -> npt.NDArray[Any]:
        action = draws.mode()
        noise = self.rng.standard_normal(action.shape, np.float32)
        return np.clip(action + np.float32(self.noise) * noise, -1.0, 1.0)
