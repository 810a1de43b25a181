"""The network with image encoders, in torch: Nature-CNN, two stacked towers, two heads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.policy import mlp
from rookery.policy.compilation import compile_network
from rookery.policy.encoder import Features
from rookery.policy.feed import Feed
from rookery.policy.network import Floats, Forward, Network
from rookery.policy.old_model import ActorCriticModel
from rookery.policy.parameters import NATURE_CONVOLUTIONS
from rookery.policy.placement import Placement, host

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class TorchNetwork(Network):
    """Computes any `ActorCriticModel` by torch operations.

    Heads and losses stay in numpy on every device: they read ``[N, num_outputs]`` numbers, which
    are brought back. Observations, parameters and gradients are what is large.

    Args:
        model: what to compute; on the cpu its parameters' memory is shared.
        device: "cpu", "cuda", "cuda:N" or "mps".
        compiled: whether torch.compile translates the network.

    Attributes:
        placement: where the parameters are.
    """

    def __init__(
        self, model: ActorCriticModel, device: str = "cpu", compiled: bool = False
    ) -> None:
        super().__init__(model)
        self._activation = _ACTIVATIONS[model.spec.activation]
        self.placement = Placement(model, device)
        self._feed = Feed(self.placement.device)
        self._compute = compile_network(self._run) if compiled else self._run
        self.parameters = self.placement.parameters

    def learning(self) -> AbstractContextManager[None]:
        return self.placement.learning()

    def send(self, features: Any) -> Callable[[], Any]:
        return self._feed.send(features)

    def tensors(self, features: Features) -> tuple[Tensor, Tensor]:
        """Compute outputs ``[N, num_outputs]`` and values ``[N]``."""
        place = self.placement.tensor
        images = [place(image) for image in features.images]
        return self._compute(self.placement.flat, place(features.vector), images)

    def forward(self, features: Features) -> Forward:
        outputs, value = self.tensors(features)

        def backward(d_outputs: Floats, d_value: Floats, d_log_std: Floats | None = None) -> Any:
            return self.placement.gradient([outputs, value], [d_outputs, d_value], d_log_std)

        return Forward(host(outputs), host(value), backward)

    def _log_std(self) -> Floats:
        return self.placement.log_std()

    def _run(self, flat: Tensor, x: Tensor, images: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Everything that is compiled: from tensors to tensors."""
        parts = self.placement.views(flat)
        encoded = [_nature_network(parts, f"image{i}", image) for i, image in enumerate(images)]
        x = torch.cat([x, *encoded], dim=1)
        towers = mlp.Towers.of(parts)
        hidden = x.expand(2, *x.shape)
        for weight, bias in towers.layers:
            hidden = self._activation(torch.baddbmm(bias, hidden, weight))
        outputs = torch.addmm(towers.actor[1], hidden[0], towers.actor[0])
        return outputs, torch.addmm(towers.critic[1], hidden[1], towers.critic[0]).squeeze(1)


def _nature_network(parts: dict[str, Tensor], name: str, image: Tensor) -> Tensor:
    """Mnih et al. (2015): three convolutions and a linear layer, uint8 ``[N, C, H, W]`` in.

    Channels last in memory, in which a gradient step on 256 images takes 170 ms of one core
    instead of 250, and which costs nothing where the env has them last.
    """
    x = image.to(torch.float32, memory_format=torch.channels_last).div_(255.0)
    for k, (_, stride, _) in enumerate(NATURE_CONVOLUTIONS):
        weight, bias = parts[f"{name}.conv{k}.weight"], parts[f"{name}.conv{k}.bias"]
        weight = weight.contiguous(memory_format=torch.channels_last)
        x = F.relu(F.conv2d(x, weight, bias, stride))
    weight, bias = parts[f"{name}.linear.weight"], parts[f"{name}.linear.bias"]
    return F.relu(torch.addmm(bias, x.flatten(1), weight))
