"""Adam on one flat array."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.learn.array_ops import fill, operations, to_host


class Adam:
    """Kingma and Ba (2015), algorithm 1, in the reordered form of their section 2.

    All parameters are one array, so a step is ten numpy calls (17 us for 9 000 parameters). They
    may be a tensor, and so is the gradient then; see `rookery.learn.array_ops`.
    """

    def __init__(
        self, parameters: Any, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-5
    ) -> None:
        self._parameters = parameters
        self._betas = beta1, beta2
        self._epsilon = epsilon
        self._ops = operations(parameters)
        self._mean, self._square, self._scratch = (
            self._ops.zeros_like(parameters) for _ in range(3)
        )
        self._steps = 0

    def step(self, gradient: Any, learning_rate: float) -> None:
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
        beta1, beta2 = self._betas
        self._steps += 1
        ops, scratch = self._ops, self._scratch
        self._mean *= np.float32(beta1)
        self._mean += ops.multiply(gradient, np.float32(1.0 - beta1), out=scratch)
        self._square *= np.float32(beta2)
        ops.multiply(gradient, gradient, out=scratch)
        scratch *= np.float32(1.0 - beta2)
        self._square += scratch
        # step = rate * (mean / c1) / (sqrt(square / c2) + epsilon), with c = 1 - beta ** steps
        ops.sqrt(self._square, out=scratch)
        root = (1.0 - beta2**self._steps) ** 0.5
        scratch += np.float32(self._epsilon * root)
        ops.divide(self._mean, scratch, out=scratch)
        scratch *= np.float32(learning_rate * root / (1.0 - beta1**self._steps))
        self._parameters -= scratch

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count, as plain data."""
        return {"mean": to_host(self._mean), "square": to_host(self._square), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        fill(self._mean, state["mean"])
        fill(self._square, state["square"])
        self._steps = int(state["steps"])
