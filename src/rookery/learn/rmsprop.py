"""RMSProp on one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.learn.array_ops import fill, operations, to_host


class RMSProp:
    """Tieleman and Hinton (2012), lecture 6.5; the statistics are shared, as in Mnih et al. (2016).

    ``square = decay * square + (1 - decay) * g^2``, then a step of
    ``rate * g / sqrt(square + epsilon)``. The mean starts at one instead of zero, so that the first
    steps are no longer than the later ones.
    """

    def __init__(self, parameters: Any, decay: float = 0.99, epsilon: float = 1e-8) -> None:
        self._parameters = parameters
        self._decay = decay
        self._epsilon = np.float32(epsilon)
        self._ops = operations(parameters)
        self._square = self._ops.ones_like(parameters)
        self._scratch = self._ops.zeros_like(parameters)

    def step(self, gradient: Any, learning_rate: float) -> None:
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
        ops, scratch = self._ops, self._scratch
        ops.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1.0 - self._decay)
        self._square *= np.float32(self._decay)
        self._square += scratch
        ops.add(self._square, self._epsilon, out=scratch)
        ops.sqrt(scratch, out=scratch)
        ops.divide(gradient, scratch, out=scratch)
        scratch *= np.float32(learning_rate)
        self._parameters -= scratch

    def state_dict(self) -> dict[str, Any]:
        """The mean of squares, as plain data."""
        return {"square": to_host(self._square)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        fill(self._square, state["square"])
