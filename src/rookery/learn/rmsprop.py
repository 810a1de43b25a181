"""RMSProp on one flat array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


class RMSProp:
    """Tieleman and Hinton (2012), lecture 6.5; the statistics are shared, as in Mnih et al. (2016).

    ``square = decay * square + (1 - decay) * g^2``, then a step of
    ``rate * g / sqrt(square + epsilon)``. The mean starts at one instead of zero, so that the first
    steps are no longer than the later ones.
    """

    def __init__(self, parameters: Floats, decay: float = 0.99, epsilon: float = 1e-8) -> None:
        self._parameters = parameters
        self._decay = decay
        self._epsilon = np.float32(epsilon)
        self._square = np.ones_like(parameters)
        self._scratch = np.zeros_like(parameters)

    def step(self, gradient: Floats, learning_rate: float) -> None:
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
        scratch = self._scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1.0 - self._decay)
        self._square *= np.float32(self._decay)
        self._square += scratch
        np.add(self._square, self._epsilon, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.divide(gradient, scratch, out=scratch)
        scratch *= np.float32(learning_rate)
        self._parameters -= scratch

    def state_dict(self) -> dict[str, Any]:
        """The mean of squares, as plain data."""
        return {"square": self._square.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._square[...] = state["square"]
