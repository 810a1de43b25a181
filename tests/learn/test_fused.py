"""Gradients derived by hand are those of the losses that torch differentiates."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery import A2CConfig, PPOConfig
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.batches import Minibatch
from rookery.learn.on_policy.ppo import PPO
from rookery.policy.numpy.numpy_policy import NumpyPolicy

N = 40
ACTIONS: dict[str, Any] = {"Discrete": spaces.Discrete(3), "Box": spaces.Box(-1, 1, (2,))}
TORCH_ONLY: dict[str, Any] = {
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "MultiBinary": spaces.MultiBinary(3),
    "Dict": spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-1, 1, (2,))),
}
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)


class Shared(nn.Module):
    """Actor and critic on one trunk."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 16), nn.SiLU())
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.trunk(obs)
        return self.actor(features), self.critic(features)[:, 0]


def _learner(
    kind: Any, config: Any, action_space: Any, network: str = "towers", obs_space: Any = VECTOR
) -> Any:
    own = (lambda _, space: Shared(getattr(space, "n", 2))) if network == "own" else None
    space = IMAGE if network == "image" else obs_space
    policy = kind.make_policy(config, space, action_space, 0, network=own)
    assert isinstance(policy, NumpyPolicy) == (network == "towers")
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(policy.model.flat.size, generator=generator)
    policy.model.flat.tensor.add_(noise, alpha=0.1 if network == "image" else 0.3)
    learner = kind(policy, config, num_envs=1)
    learner.clip_range, learner.entropy_coef = 0.2, config.entropy_coef
    return learner


def _batch(learner: Any, action_space: Any, network: str = "towers") -> Minibatch:
    """Make up a minibatch that reaches both sides of every clipped term."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    obs = normal(1, N, 3)
    if network == "image":
        obs = torch.randint(0, 256, (1, N, *IMAGE.shape), generator=generator, dtype=torch.uint8)
    with torch.no_grad():
        found = learner.module.run(obs[0])
        drawn = learner.module.distribution(found.outputs)
        action = drawn.sample(generator)
        log_prob = drawn.log_prob(action) + 0.3 * normal(N)
    value = found.value + 0.3 * normal(N)
    return Minibatch(obs, action, log_prob, value, normal(N), found.value + normal(N))


def _assert_equal(learner: Any, batch: Minibatch) -> None:
    found = learner._fused.gradient(learner, batch)
    assert found is not None
    gradient, scalars = found[0].clone(), found[1]
    expected = learner.loss(batch)
    by_torch = learner._place.flat.gradient(expected["loss"])
    assert by_torch.abs().max() > 1e-3
    torch.testing.assert_close(gradient, by_torch, rtol=1e-3, atol=2e-5)
    numbers = {name: float(x.detach()) for name, x in expected.items()}
    assert scalars == pytest.approx(numbers, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("network", ["towers", "own", "image"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_gradient_of_ppo_is_torchs(action: str, network: str) -> None:
    options = product([0.0, 0.05], [None, 0.2], [True, False])
    for entropy_coef, value_clip_range, normalize_advantage in options:
        config = PPOConfig(
            entropy_coef=entropy_coef, value_clip_range=value_clip_range,
            normalize_advantage=normalize_advantage,
        )  # fmt: skip
        learner = _learner(PPO, config, ACTIONS[action], network)
        batch = _batch(learner, ACTIONS[action], network)
        _assert_equal(learner, batch)
        assert 0.1 < float(learner.loss(batch)["clip_fraction"]) < 0.9


@pytest.mark.parametrize("network", ["towers", "own", "image"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_gradient_of_a2c_is_torchs(action: str, network: str) -> None:
    for entropy_coef, normalize_advantage in product([0.0, 0.05], [True, False]):
        config = A2CConfig(entropy_coef=entropy_coef, normalize_advantage=normalize_advantage)
        learner = _learner(A2C, config, ACTIONS[action], network)
        _assert_equal(learner, _batch(learner, ACTIONS[action], network))


@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (16,), (32, 16)])
def test_the_gradient_of_towers_is_torchs(kind: Any, activation: str, hidden_sizes: Any) -> None:
    settings = PPOConfig if kind is PPO else A2CConfig
    config = settings(activation=activation, hidden_sizes=hidden_sizes, entropy_coef=0.05)
    learner = _learner(kind, config, ACTIONS["Box"])
    _assert_equal(learner, _batch(learner, ACTIONS["Box"]))


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_one_row_alone_keeps_its_advantage(kind: Any) -> None:
    config = PPOConfig() if kind is PPO else A2CConfig(normalize_advantage=True)
    learner = _learner(kind, config, ACTIONS["Discrete"])
    batch = _batch(learner, ACTIONS["Discrete"])
    names = ("action", "log_prob", "value", "advantage", "returns")
    columns = {name: getattr(batch, name)[:1] for name in names}
    _assert_equal(learner, replace(batch, obs=batch.obs[:, :1], **columns))


@pytest.mark.parametrize("kind", [PPO, A2C])
@pytest.mark.parametrize("action", TORCH_ONLY)
def test_other_actions_are_left_to_torch(kind: Any, action: str) -> None:
    config = PPOConfig() if kind is PPO else A2CConfig()
    learner = _learner(kind, config, TORCH_ONLY[action])
    assert learner._fused is None


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_masks_are_left_to_torch(kind: Any) -> None:
    config = PPOConfig() if kind is PPO else A2CConfig()
    learner = _learner(kind, config, ACTIONS["Discrete"])
    batch = _batch(learner, ACTIONS["Discrete"])
    mask = torch.ones(N, 3, dtype=torch.bool)
    assert learner._fused.gradient(learner, batch) is not None
    assert learner._fused.gradient(learner, replace(batch, mask=mask)) is None


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_memory_is_left_to_torch(kind: Any) -> None:
    config = PPOConfig(recurrent="gru") if kind is PPO else A2CConfig(recurrent="gru")
    policy = kind.make_policy(config, VECTOR, ACTIONS["Discrete"], 0)
    assert kind(policy, config, num_envs=1)._fused is None
