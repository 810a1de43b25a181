"""Optimizers of one flat tensor, and the gradient step of all learners.

All parameters are one tensor, so a step is a few operations in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.learn.parallel.peers import ALONE, Peers, average


class Adam:
    """Kingma and Ba (2015), algorithm 1, in the reordered form of their section 2.

    Args:
        parameters: float32 ``[size]``, changed in place.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        epsilon: Added to the root of the mean of squared gradients.
    """

    def __init__(
        self, parameters: Tensor, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-5
    ) -> None:
        self._parameters = parameters
        self._betas, self._epsilon = (beta1, beta2), epsilon
        self._mean, self._square, self._scratch = (torch.zeros_like(parameters) for _ in range(3))
        self._steps = 0

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Update the parameters in place; ``gradient`` is float32 ``[size]``."""
        beta1, beta2 = self._betas
        self._steps += 1
        self._mean.lerp_(gradient, 1.0 - beta1)
        self._square.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        # step = rate * (mean / c1) / (sqrt(square / c2) + epsilon), with c = 1 - beta ** steps
        root = (1.0 - beta2**self._steps) ** 0.5
        torch.sqrt(self._square, out=self._scratch).add_(self._epsilon * root)
        rate = learning_rate * root / (1.0 - beta1**self._steps)
        self._parameters.addcdiv_(self._mean, self._scratch, value=-rate)

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the step count as plain data."""
        return {"mean": to_host(self._mean), "square": to_host(self._square), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        fill(self._mean, state["mean"])
        fill(self._square, state["square"])
        self._steps = int(state["steps"])


class RMSProp:
    """Tieleman and Hinton (2012), lecture 6.5, with shared statistics as in Mnih et al. (2016).

    ``square = decay * square + (1 - decay) * g^2``, then a step of
    ``rate * g / (sqrt(square) + epsilon)``. Torch has the same form, and published settings refer
    to it. With epsilon under the root and a mean that starts at one, A2C reached returns of -1239
    and -421 on LunarLander with published settings; this form reached -91 and 113.

    Args:
        parameters: float32 ``[size]``, changed in place.
        decay: Decay of the mean of squared gradients.
        epsilon: Added to the root of the mean of squared gradients.
    """

    def __init__(self, parameters: Tensor, decay: float = 0.99, epsilon: float = 1e-5) -> None:
        self._parameters = parameters
        self._decay, self._epsilon = decay, epsilon
        self._square, self._scratch = torch.zeros_like(parameters), torch.zeros_like(parameters)

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Update the parameters in place; ``gradient`` is float32 ``[size]``."""
        self._square.mul_(self._decay).addcmul_(gradient, gradient, value=1.0 - self._decay)
        torch.sqrt(self._square, out=self._scratch).add_(self._epsilon)
        self._parameters.addcdiv_(gradient, self._scratch, value=-learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """Return the mean of squares as plain data."""
        return {"square": to_host(self._square)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        fill(self._square, state["square"])


def gradient_step(
    optimizer: Adam | RMSProp,
    loss: Tensor | float,
    gradient: Tensor,
    learning_rate: float,
    max_norm: float,
    scalars: Mapping[str, Tensor | float] = MappingProxyType({}),
    peers: Peers = ALONE,
    num_rows: int = 1,
) -> dict[str, float]:
    """Update the parameters with a gradient, scaled down to ``max_norm``, if all is finite.

    A loss or gradient that is not finite would turn every parameter into NaN. Such a step is
    skipped and counted.

    Args:
        optimizer: The optimizer of the parameters.
        loss: The scalar that was differentiated.
        gradient: float32 ``[size]``, scaled in place.
        learning_rate: Step size, see `rookery.learn.schedule.scheduled`.
        max_norm: Greatest norm of the gradient.
        scalars: Further metrics.
        peers: Learners that take this step together, each with its gradient.
        num_rows: Number of rows that the loss is a mean of, the weight of this learner.

    Returns:
        The scalars, ``loss``, ``gradient_norm`` before scaling, and ``skipped_gradient_steps``,
        0 or 1.
    """
    named = {**scalars, "loss": loss}
    if peers.size > 1:
        means = {name: torch.as_tensor(x).detach() for name, x in named.items()}
        gradient, means = average(peers, gradient, means, num_rows)
        named = {**means}
    norm = torch.linalg.vector_norm(gradient)
    tensors = {name: x.detach() for name, x in named.items() if isinstance(x, Tensor)}
    # One transfer: on a GPU, reading each number waits for all earlier computations.
    numbers = torch.stack([*tensors.values(), norm]).tolist()
    metrics = {**named, **dict(zip([*tensors, "gradient_norm"], numbers, strict=True))}
    is_finite = math.isfinite(metrics["gradient_norm"]) and math.isfinite(metrics["loss"])
    if is_finite:
        if metrics["gradient_norm"] > max_norm:
            gradient *= max_norm / metrics["gradient_norm"]
        optimizer.step(gradient, learning_rate)
    return {**metrics, "skipped_gradient_steps": float(not is_finite)}


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """Copy a tensor into a fresh numpy array."""
    return np.array(tensor.detach().cpu().numpy())


def fill(tensor: Tensor, values: Any) -> None:
    """Copy the values of an array into a tensor."""
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(values)))
