"""The initial weights of learners from replay: orthogonal, or uniform as torch's own are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gymnasium import spaces

from rookery import DQNConfig, QRDQNConfig, SACConfig, TD3Config
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.off_policy.qrdqn import QRDQN
from rookery.learn.off_policy.sac import SAC
from rookery.learn.off_policy.td3 import TD3
from rookery.policy.torch.layers import Linear, StackedLinear

OBS = spaces.Box(-1, 1, (40,))
CASES = [
    pytest.param(DQN, DQNConfig(dueling=True, hidden_sizes=(50, 25)), id="dueling"),
    pytest.param(DQN, DQNConfig(dueling=False, hidden_sizes=(50, 25)), id="dqn"),
    pytest.param(QRDQN, QRDQNConfig(hidden_sizes=(50, 25)), id="qrdqn"),
    pytest.param(SAC, SACConfig(hidden_sizes=(50, 25)), id="sac"),
    pytest.param(
        SAC, SACConfig(hidden_sizes=(50, 25), state_dependent_noise=True), id="sac-held-noise"
    ),
    pytest.param(TD3, TD3Config(hidden_sizes=(50, 25)), id="td3"),
]


def _layers(kind, config, seed=1):
    """Weights ``[K, inputs, outputs]`` and biases ``[K, 1, outputs]`` of all networks."""
    is_continuous = kind in (SAC, TD3)
    actions = spaces.Box(-1, 1, (2,)) if is_continuous else spaces.Discrete(3)
    policy = kind.make_policy(config, OBS, actions, seed)
    learner = kind(policy, config, 2, seed)
    modules = [policy.model.module, *([learner._critics] if is_continuous else [])]
    every = [layer for module in modules for layer in module.modules()]
    layers = [layer for layer in every if isinstance(layer, Linear | StackedLinear)]
    assert len(layers) == (6 if is_continuous else 3 + (config.to_dict().get("dueling") is True))
    return [
        (layer.weight.detach().reshape(-1, *layer.weight.shape[-2:]), layer.bias.detach())
        for layer in layers
    ]


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_they_are_orthogonal(kind, config):
    for weights, biases in _layers(kind, config):
        assert (biases == 0).all()
        for weight in weights:
            few = weight if weight.shape[0] < weight.shape[1] else weight.T
            products = few @ few.T
            identity = torch.eye(len(few)) * products[0, 0]
            torch.testing.assert_close(products, identity, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("kind", "config"), CASES)
def test_they_can_be_uniform(kind, config):
    config = replace(config, orthogonal_init=False)
    found = _layers(kind, config)
    for weights, biases in found:
        limit = weights.shape[1] ** -0.5
        for member in weights:
            assert 0.8 * limit < member.abs().max() <= limit
        assert 0 < biases.abs().max() <= limit
        if weights.numel() > 500:
            assert float(weights.std()) == pytest.approx(limit / 3**0.5, rel=0.1)
    for (one, _), (same, _), (other, _) in zip(
        found, _layers(kind, config), _layers(kind, config, seed=2), strict=True
    ):
        assert (one == same).all() and (one != other).any()
