"""Outputs of torch modules, for acting: by numpy where a module is a plain one, else by torch."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt
import torch

from rookery.policy.encoders import FeatureEncoder, Numbers, OneHot, to_tensors
from rookery.policy.model import Model
from rookery.policy.networks import QNetwork, SquashedActor
from rookery.policy.numpy_network import ArrayWeights, NetworkSpec, NumpyNetwork
from rookery.policy.outputs_policy import OutputsNetwork
from rookery.policy.policy_module import PolicyModule
from rookery.policy.quantiles import Quantiles
from rookery.rollout.tree import Tree

_NONE = np.empty(0, np.float32)


class ModuleNetwork:
    """Runs the module of a model, on the cpu.

    Args:
        weights: the model, whose module is a `PolicyModule`.
    """

    def __init__(self, weights: Model) -> None:
        self.weights = weights

    def outputs(self, obs: Tree) -> npt.NDArray[np.float32]:
        """Run on observations ``[N, *obs]``: float32 ``[N, num_outputs]``."""
        module = self.weights.module
        module.eval()
        with torch.inference_mode():
            outputs: npt.NDArray[np.float32] = module(to_tensors(obs)).outputs.numpy()
        return outputs


def network_of(model: Model, observation_space: spaces.Space[Any]) -> OutputsNetwork:
    """Find the fastest way to the outputs of a model on the cpu."""
    spec = _plain_spec(model, observation_space)
    if spec is None:
        return ModuleNetwork(model)
    normalizer = model.module.normalizer
    statistics: Any = (_NONE, _NONE)
    if isinstance(normalizer, torch.nn.Module):
        statistics = normalizer.mean.numpy(), normalizer.scale.numpy()
    return NumpyNetwork(spec, ArrayWeights(model.parameters, *statistics, model.exploration))


def _plain_spec(model: Model, observation_space: spaces.Space[Any]) -> NetworkSpec | None:
    """What numpy needs to know of a module; None where it is not made of plain layers."""
    module = model.module
    assert isinstance(module, PolicyModule)
    encoder = module.encoder
    if not isinstance(encoder, FeatureEncoder):
        return None
    if not all(isinstance(part, Numbers | OneHot) for part in encoder.parts):
        return None
    network: Any = module.network
    num_quantiles = 0
    if isinstance(network, Quantiles):
        network, num_quantiles = network.network, network.num_quantiles
    if isinstance(network, QNetwork):
        layers = network.towers
    elif isinstance(network, SquashedActor):
        layers = network.layers
    else:
        return None
    return NetworkSpec(observation_space, model.flat.shapes, layers.activation, num_quantiles)
