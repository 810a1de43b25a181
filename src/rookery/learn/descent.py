"""Gradient steps on a module's flat parameters."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rookery.policy.flat import FlatParameters


class NotFiniteError(ArithmeticError):
    """A loss or its gradient is not finite; no step was taken."""


class Descent:
    """Adam (Kingma and Ba 2015, algorithm 1) on all parameters of a module at once.

    They are one tensor, so a step is six operations whatever the module is.

    Args:
        parameters: of the module.
        epsilon: added to the root of the mean of squared gradients.
        max_norm: longest gradient; longer ones are scaled down.
    """

    def __init__(
        self, parameters: FlatParameters, epsilon: float, max_norm: float = math.inf
    ) -> None:
        self.parameters = parameters
        self._epsilon, self._max_norm = epsilon, max_norm
        self._mean, self._square, self._scratch = (
            torch.zeros_like(parameters.tensor) for _ in range(3)
        )
        self._steps = 0

    def step(self, loss: Tensor, learning_rate: float) -> float:
        """Move the parameters against the gradient of ``loss``.

        Returns:
            The length of the gradient.

        Raises:
            NotFiniteError: loss or gradient are not finite; nothing was changed.
        """
        gradient = self.parameters.gradient(loss)
        norm, value = torch.stack([torch.linalg.vector_norm(gradient), loss.detach()]).tolist()
        if not math.isfinite(norm) or not math.isfinite(value):
            raise NotFiniteError(f"loss {value}, gradient of length {norm}")
        if norm > self._max_norm:
            gradient.mul_(self._max_norm / norm)
        self._move(gradient, learning_rate)
        return norm

    @torch.no_grad()
    def _move(self, gradient: Tensor, learning_rate: float) -> None:
        beta1, beta2 = 0.9, 0.999
        self._steps += 1
        self._mean.lerp_(gradient, 1.0 - beta1)
        self._square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        # step = rate * (mean / c1) / (sqrt(square / c2) + epsilon), with c = 1 - beta ** steps
        root = math.sqrt(1.0 - beta2**self._steps)
        torch.sqrt(self._square, out=self._scratch).add_(self._epsilon * root)
        rate = learning_rate * root / (1.0 - beta1**self._steps)
        self.parameters.tensor.addcdiv_(self._mean, self._scratch, value=-rate)

    def state_dict(self) -> dict[str, Any]:
        """Moments and step count, as plain data."""
        moments = {"mean": self._mean, "square": self._square}
        return {**{k: to_host(moment) for k, moment in moments.items()}, "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        fill(self._mean, state["mean"])
        fill(self._square, state["square"])
        self._steps = int(state["steps"])


class Target:
    """A copy of a module that follows it slowly, and is never differentiated.

    Args:
        followed: the parameters of the module.

    Attributes:
        module: the copy.
        parameters: those of the copy.
    """

    def __init__(self, followed: FlatParameters) -> None:
        self._followed = followed
        self.module: nn.Module = copy.deepcopy(followed.module).requires_grad_(False)
        self.parameters = FlatParameters(self.module)

    def follow(self, rate: float) -> None:
        """Go ``rate`` of the way to the module; 1 copies it."""
        self.parameters.tensor.lerp_(self._followed.tensor, rate)


def to_host(tensor: Tensor) -> Any:
    """Copy a tensor into a fresh numpy array."""
    return np.array(tensor.detach().cpu().numpy())


def fill(tensor: Tensor, values: Any) -> None:
    """Do ``tensor[...] = values`` of a numpy array."""
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(values)))
