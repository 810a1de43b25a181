"""Optimisers on one flat tensor, and the gradient step that learners take.

All parameters are one tensor, so a step is a few operations, done in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from rookery.learn.off_policy.target import fill, to_host
from rookery.learn.parallel.peers import ALONE, Peers, average


class Adam:
    """Kingma and Ba (2015), algorithm 1, in the reordered form of their section 2.

    Args:
        parameters: float32 ``[size]``, changed in place.
        beta1: decay of the mean of gradients.
        beta2: decay of the mean of squared gradients.
        epsilon: added to the root of the latter.
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
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
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
        """Moments and step count, as plain data."""
        return {"mean": to_host(self._mean), "square": to_host(self._square), "steps": self._steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        fill(self._mean, state["mean"])
        fill(self._square, state["square"])
        self._steps = int(state["steps"])


class RMSProp:
    """Tieleman and Hinton (2012), lecture 6.5; the statistics are shared, as in Mnih et al. (2016).

    ``square = decay * square + (1 - decay) * g^2``, then a step of
    ``rate * g / (sqrt(square) + epsilon)``: torch's form, in which others publish their settings.
    With epsilon under the root, and a mean that starts at one, those of A2C ended at -1 239 and
    -421 on LunarLander, and with this at -91 and 113.

    Args:
        parameters: float32 ``[size]``, changed in place.
        decay: of the mean of squared gradients.
        epsilon: added to its root.
    """

    def __init__(self, parameters: Tensor, decay: float = 0.99, epsilon: float = 1e-5) -> None:
        self._parameters = parameters
        self._decay, self._epsilon = decay, epsilon
        self._square, self._scratch = torch.zeros_like(parameters), torch.zeros_like(parameters)

    @torch.no_grad()
    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Move the parameters, in place; ``gradient`` is float32 ``[size]``."""
        self._square.mul_(self._decay).addcmul_(gradient, gradient, value=1.0 - self._decay)
        torch.sqrt(self._square, out=self._scratch).add_(self._epsilon)
        self._parameters.addcdiv_(gradient, self._scratch, value=-learning_rate)

    def state_dict(self) -> dict[str, Any]:
        """The mean of squares, as plain data."""
        return {"square": to_host(self._square)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
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
    """Move the parameters by a gradient, scaled down to ``max_norm``, if all is finite.

    A loss or a gradient that is not finite would turn every parameter into NaN, for good. The step
    is left out instead, and counted.

    Args:
        optimizer: moves the parameters.
        loss: the scalar that was differentiated.
        gradient: float32 ``[size]``; scaled in place.
        learning_rate: see `rookery.learn.schedule.scheduled`.
        max_norm: the greatest length.
        scalars: what else is to be reported.
        peers: those who take this step together, each with a gradient of its own.
        num_rows: that the loss is a mean of; a learner with more of them counts for more.

    Returns:
        The scalars, ``loss``, ``gradient_norm``, before it was scaled, and
        ``skipped_gradient_steps``, 0 or 1.
    """
    named = {**scalars, "loss": loss}
    if peers.size > 1:
        means = {name: torch.as_tensor(x).detach() for name, x in named.items()}
        gradient, means = average(peers, gradient, means, num_rows)
        named = {**means}
    norm = torch.linalg.vector_norm(gradient)
    tensors = {name: x.detach() for name, x in named.items() if isinstance(x, Tensor)}
    # All at once: on a device, every number that is asked for waits for all that was computed.
    numbers = torch.stack([*tensors.values(), norm]).tolist()
    metrics = {**named, **dict(zip([*tensors, "gradient_norm"], numbers, strict=True))}
    is_finite = math.isfinite(metrics["gradient_norm"]) and math.isfinite(metrics["loss"])
    if is_finite:
        if metrics["gradient_norm"] > max_norm:
            gradient *= max_norm / metrics["gradient_norm"]
        optimizer.step(gradient, learning_rate)
    return {**metrics, "skipped_gradient_steps": float(not is_finite)}
