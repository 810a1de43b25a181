"""Policies and networks: the numpy ones equal the torch ones."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rookery import ConfigError
from rookery.policy import MLPPolicy, make_policy
from rookery.policy.network import MLPNetwork, network_for
from rookery.policy.torch_network import TorchNetwork
from rookery.policy.torch_policy import TorchPolicy

VECTOR = spaces.Box(-1, 1, (5,))
IMAGE = spaces.Box(0, 255, (48, 40, 3), np.uint8)
ACTIONS = [spaces.Discrete(3, start=2), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(3)]


def _perturbed(policy):
    """Move away from the initial weights, whose zero biases would hide mistakes."""
    parameters = policy.model.parameters
    parameters += np.random.default_rng(3).normal(size=parameters.shape).astype(np.float32) * 0.1
    return policy


@pytest.mark.parametrize("action_space", ACTIONS, ids=lambda space: type(space).__name__)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (16,), (32, 16, 8)])
def test_the_numpy_actor_and_network_equal_torch(action_space, activation, hidden_sizes):
    policy = _perturbed(
        make_policy(VECTOR, action_space, hidden_sizes=hidden_sizes, activation=activation)
    )
    obs = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    step = policy.act(obs)
    features, action = policy.model.encode(obs), policy.model.head.encode(step.action)
    gradients = []
    for network in (MLPNetwork(policy.model), TorchNetwork(policy.model)):
        evaluation = network.evaluate(features, action)
        np.testing.assert_allclose(evaluation.log_prob, step.log_prob, atol=1e-5)
        np.testing.assert_allclose(evaluation.value, step.value, atol=1e-5)
        by = np.random.default_rng(1).normal(size=(3, 60)).astype(np.float32)
        gradients.append(evaluation.backward(*by).copy())
    np.testing.assert_allclose(*gradients, rtol=1e-4, atol=1e-4)


def test_acting_is_sampling_and_assessing():
    obs = np.zeros((4, 5), np.float32)
    policy, twin = (make_policy(VECTOR, spaces.Discrete(3), seed=7) for _ in range(2))
    step, action = policy.act(obs), twin.sample(obs)
    np.testing.assert_array_equal(step.action, action)
    np.testing.assert_array_equal(step.log_prob, twin.assess(obs, action)[0])
    np.testing.assert_array_equal(step.value, twin.value(obs))


def test_a_deterministic_actor_needs_no_luck():
    policy = _perturbed(make_policy(VECTOR, spaces.Discrete(3)))
    obs = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    first, second = (policy.act(obs, deterministic=True).action for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_seeds_give_weights_and_actions():
    obs = np.zeros((32, 5), np.float32)
    one, same, other = (make_policy(VECTOR, spaces.Discrete(3), seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.model.parameters, same.model.parameters)
    np.testing.assert_array_equal(one.act(obs).action, same.act(obs).action)
    assert (one.model.parameters != other.model.parameters).any()


def test_given_parameters_are_shared_not_copied():
    parameters = make_policy(VECTOR, spaces.Discrete(2)).model.parameters
    policy = make_policy(VECTOR, spaces.Discrete(2), parameters=parameters)
    obs = np.ones((1, 5), np.float32)
    before = policy.value(obs).copy()
    parameters += 0.1
    assert policy.value(obs) != before


def test_initial_weights_are_orthogonal_and_the_first_actions_nearly_uniform():
    policy = make_policy(VECTOR, spaces.Discrete(4), hidden_sizes=(5, 5))
    weight = policy.model.layout.views(policy.model.parameters)["tower1.weight"]
    for tower in weight:
        np.testing.assert_allclose(tower @ tower.T, 2 * np.eye(5), atol=1e-5)
    step = policy.act(np.ones((10, 5), np.float32))
    np.testing.assert_allclose(step.log_prob, np.log(0.25), atol=0.05)


@pytest.mark.parametrize(
    "space",
    [
        IMAGE,
        spaces.Box(0, 255, (3, 48, 40), np.uint8),
        spaces.Dict(eye=IMAGE, ear=spaces.Box(-1, 1, (3,)), mode=spaces.Discrete(2)),
    ],
    ids=["HWC", "CHW", "dict"],
)
def test_images_go_through_the_convolutional_network(space):
    policy = make_policy(space, spaces.Box(-1, 1, (2,)), normalize_obs=True)
    assert isinstance(policy, TorchPolicy)
    obs = batch_space(
        space,
        6,
    ).sample()
    step = policy.act(obs)
    np.testing.assert_allclose(step.value, policy.value(obs), atol=1e-5)
    evaluation = network_for(policy.model).evaluate(
        policy.model.encode(obs), policy.model.head.encode(step.action)
    )
    np.testing.assert_allclose(evaluation.log_prob, step.log_prob, atol=1e-5)
    ones = np.ones(6, np.float32)
    gradient = evaluation.backward(ones, ones, ones)
    for name, view in policy.model.layout.views(gradient).items():
        assert np.isfinite(view).all()
        assert (view != 0).any(), name


def test_only_numbers_are_normalised_not_choices():
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(-9, 9, (1,)))
    policy = make_policy(space, spaces.Discrete(2), normalize_obs=True)
    assert isinstance(policy, MLPPolicy)
    obs = {"a": np.array([0, 1]), "b": np.array([[2.0], [6.0]], np.float32)}
    policy.model.observe(obs)
    np.testing.assert_allclose(policy.model.encode(obs).vector, [[-1, 1, 0], [1, 0, 1]], atol=1e-5)


def test_a_model_survives_its_state():
    first = make_policy(VECTOR, spaces.Box(-1, 1, (2,)), normalize_obs=True, seed=1)
    first.model.observe(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
    second = make_policy(VECTOR, spaces.Box(-1, 1, (2,)), normalize_obs=True, seed=2)
    second.model.load_state_dict(first.model.state_dict())
    obs = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(first.value(obs), second.value(obs))
    np.testing.assert_array_equal(
        first.act(obs, deterministic=True).action, second.act(obs, deterministic=True).action
    )


def test_an_unknown_activation_is_refused():
    with pytest.raises(ConfigError, match="'swish' is not known"):
        make_policy(VECTOR, spaces.Discrete(2), activation="swish")


def test_collecting_with_an_mlp_needs_no_torch():
    code = """
import sys, numpy as np
from gymnasium import spaces
import rookery.collect, rookery.learn, rookery.rollout
from rookery.policy import make_policy
policy = make_policy(spaces.Box(-1, 1, (4,)), spaces.Discrete(2))
policy.act(np.zeros((2, 4), np.float32))
print("torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
