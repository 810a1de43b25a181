"""The network with image encoders, in torch: Nature-CNN, two stacked towers, two heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.policy import mlp
from rookery.policy.encoder import Features
from rookery.policy.model import ActorCriticModel
from rookery.policy.network import Floats, Forward, Network
from rookery.policy.parameters import NATURE_CONVOLUTIONS

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


class TorchNetwork(Network):
    """Computes any `ActorCriticModel` by torch operations, sharing its parameters' memory."""

    def __init__(self, model: ActorCriticModel) -> None:
        super().__init__(model)
        self._activation = _ACTIVATIONS[model.spec.activation]
        self._shapes = model.layout.shapes
        self._flat = torch.from_numpy(model.parameters).requires_grad_()

    def tensors(self, features: Features) -> tuple[Tensor, Tensor]:
        """Compute outputs ``[N, num_outputs]`` and values ``[N]``."""
        parts = self._named()
        encoded = [
            _nature_network(parts, f"image{i}", _tensor(image))
            for i, image in enumerate(features.images)
        ]
        x = torch.cat([_tensor(features.vector), *encoded], dim=1)
        towers = mlp.Towers.of(parts)
        hidden = x.expand(2, *x.shape)
        for weight, bias in towers.layers:
            hidden = self._activation(torch.baddbmm(bias, hidden, weight))
        outputs = torch.addmm(towers.actor[1], hidden[0], towers.actor[0])
        return outputs, torch.addmm(towers.critic[1], hidden[1], towers.critic[0]).squeeze(1)

    def forward(self, features: Features) -> Forward:
        outputs, value = self.tensors(features)

        def backward(d_outputs: Floats, d_value: Floats) -> Floats:
            by = [torch.from_numpy(d_outputs), torch.from_numpy(d_value)]
            (flat,) = torch.autograd.grad([outputs, value], self._flat, by)
            gradient: Floats = flat.numpy()
            return gradient

        return Forward(outputs.detach().numpy(), value.detach().numpy(), backward)

    def _named(self) -> dict[str, Tensor]:
        """Views by name. One split is one node of the graph, so the gradient is one tensor."""
        sizes = [int(np.prod(shape)) for shape in self._shapes.values()]
        parts = torch.split(self._flat, sizes)
        pairs = zip(self._shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in pairs}


def _nature_network(parts: dict[str, Tensor], name: str, image: Tensor) -> Tensor:
    """Mnih et al. (2015): three convolutions and a linear layer, uint8 ``[N, C, H, W]`` in."""
    x = image.to(torch.float32) / 255.0
    for k, (_, stride, _) in enumerate(NATURE_CONVOLUTIONS):
        weight, bias = parts[f"{name}.conv{k}.weight"], parts[f"{name}.conv{k}.bias"]
        x = F.relu(F.conv2d(x, weight, bias, stride))
    weight, bias = parts[f"{name}.linear.weight"], parts[f"{name}.linear.bias"]
    return F.relu(torch.addmm(bias, x.flatten(1), weight))


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
