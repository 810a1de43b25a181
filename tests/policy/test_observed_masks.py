"""No network reads an action mask in the observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import nn

from rookery import DQNConfig, PPOConfig, QRDQNConfig
from rookery.policy import make_policy
from rookery.policy.numpy.numpy_policy import NumpyNetworkPolicy
from rookery.policy.torch.encoders import to_tensors
from rookery.policy.torch.torch_policy import TorchPolicy
from rookery.run.algorithms import BuiltIn

VECTOR, IMAGE = spaces.Box(-1, 1, (5,)), spaces.Box(0, 255, (8, 8, 3), np.uint8)
MASKS = {
    "bits": spaces.MultiBinary(3),
    "numbers": spaces.Box(0, 1, (3,), np.float32),
}
NETWORKS: dict[str, dict[str, Any]] = {
    "towers": {},
    "normalised": {"normalize_obs": True},
    "memory": {"core": "gru", "core_size": 8},
}


def _observations(space: Any, legal: Any) -> Any:
    batch = batch_space(space, 12)
    batch.seed(0)
    obs = batch.sample()
    obs["action_mask"][:] = legal
    return obs


def _perturbed(policy: Any) -> Any:
    noise = np.random.default_rng(3).normal(size=policy.model.parameters.shape)
    policy.model.parameters[:] += 0.1 * noise.astype(np.float32)
    return policy


def _assert_reads_no_mask(policy: Any, space: Any) -> None:
    """Legal or not, the logits are the same; yet what is illegal is not done."""
    found = [policy._predict(_observations(space, legal)) for legal in ([1, 1, 1], [0, 1, 0])]
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one, other)
    only = np.eye(3)[np.arange(12) % 3]
    action = policy.act(_observations(space, only), deterministic=True).action
    np.testing.assert_array_equal(action, np.arange(12) % 3)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("shown", [VECTOR, IMAGE], ids=["vector", "image"])
def test_masks_do_not_change_logits(shown: Any, form: str, network: str) -> None:
    space = spaces.Dict(action_mask=MASKS[form], x=shown)
    policy = _perturbed(make_policy(space, spaces.Discrete(3), **NETWORKS[network]))
    assert isinstance(policy, NumpyNetworkPolicy if shown is VECTOR else TorchPolicy)
    policy.model.observe(_observations(space, np.eye(3)[np.arange(12) % 3]))
    _assert_reads_no_mask(policy, space)
    assert policy.model.module.encoder.num_features == (5 if shown is VECTOR else 512)


@pytest.mark.parametrize("shown", [VECTOR, IMAGE], ids=["vector", "image"])
def test_numpy_and_torch_read_the_same_parts_beside_a_mask(shown: Any) -> None:
    space = spaces.Dict(action_mask=MASKS["bits"], x=shown, y=spaces.Discrete(2))
    policy = _perturbed(make_policy(space, spaces.Discrete(3), normalize_obs=True))
    obs = _observations(space, [1, 0, 1])
    policy.model.observe(obs)
    twin = TorchPolicy.of(policy.model, space, np.random.default_rng(0))
    for ours, theirs in zip(policy._predict(obs)[:2], twin._predict(obs)[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "config"), [("ppo", PPOConfig()), ("dqn", DQNConfig()), ("qrdqn", QRDQNConfig())]
)
def test_no_algorithm_reads_the_mask(name: str, config: Any) -> None:
    space = spaces.Dict(action_mask=MASKS["bits"], x=VECTOR)
    policy: Any = BuiltIn(name, config).make_policy(space, spaces.Discrete(3), 0)
    module = _perturbed(policy).model.module
    assert module.encoder.num_features == 5
    all_legal, one_legal = (
        module(to_tensors(_observations(space, legal))).outputs for legal in ([1, 1, 1], [0, 1, 0])
    )
    assert (all_legal == one_legal).all()
    assert (policy.act(_observations(space, [0, 1, 0]), deterministic=True).action == 1).all()


def test_a_part_with_the_name_but_not_the_form_of_a_mask_is_read() -> None:
    space = spaces.Dict(action_mask=spaces.Box(-5, 5, (3,)), x=VECTOR)
    policy = make_policy(space, spaces.Discrete(3))
    assert policy.model.module.encoder.num_features == 8


def test_a_mask_with_a_custom_encoder_is_read() -> None:
    space = spaces.Dict(action_mask=MASKS["bits"], x=VECTOR)

    def encoder(part: Any) -> nn.Module:
        return nn.Sequential(_Floats(), nn.Linear(part.shape[0], 4))

    policy = make_policy(space, spaces.Discrete(3), encoder={"action_mask": encoder})
    assert policy.model.module.encoder.num_features == 9


class _Floats(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.float()


def test_a_mask_that_is_the_only_part_is_read() -> None:
    space = spaces.Dict(action_mask=MASKS["bits"])
    policy = make_policy(space, spaces.Discrete(3))
    assert policy.model.module.encoder.num_features == 3
