"""Policies act equally in numpy and torch, respect masks, can be pickled, and depend on seeds."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import rookery
from rookery import ConfigError
from rookery.learn.on_policy.actor_critic import actor_critic_policy
from rookery.policy import NumpyPolicy, make_policy
from rookery.policy.actions import action_layout
from rookery.policy.torch.networks import SquashedActor
from rookery.policy.torch.torch_policy import TorchPolicy
from rookery.policy.torch.value_networks import QNetwork

VECTOR = spaces.Box(-1, 1, (5,))
OBSERVATIONS = {
    "vector": VECTOR,
    "float64": spaces.Box(-9, 9, (2, 3), np.float64),
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "number": spaces.Box(-1, 1, ()),
    "discrete": spaces.Discrete(3, start=2),
    "nested": spaces.Dict(
        b=spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(2)]),
        a=VECTOR,
        c=spaces.MultiDiscrete([2, 3]),
    ),
}
ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "multi_discrete": spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2, 2)),
    "joint": spaces.Dict(
        hand=spaces.Box(-1, 1, (2,)), legs=spaces.Tuple([spaces.Discrete(2), spaces.MultiBinary(2)])
    ),
}


def _observations(space, count: int = 60, seed: int = 0):
    batch = batch_space(space, count)
    batch.seed(seed)
    return batch.sample()


def _perturbed(policy):
    """Move away from the initial weights, whose zero biases would hide mistakes."""
    noise = np.random.default_rng(3).normal(size=policy.model.parameters.shape)
    policy.model.parameters += 0.1 * noise.astype(np.float32)
    return policy


def _assert_same(policy, obs):
    twin = TorchPolicy.of(policy.model, policy.observation_space, np.random.default_rng(0))
    twin.rng, policy.rng = np.random.default_rng(5), np.random.default_rng(5)
    for deterministic in (False, True):
        ours, theirs = (p.act(obs, deterministic) for p in (policy, twin))
        np.testing.assert_allclose(ours.action, theirs.action, atol=1e-5)
        np.testing.assert_allclose(ours.log_prob, theirs.log_prob, atol=1e-4)
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)
        for one in _actions(policy.layout.space, policy.to_env(ours.action)):
            assert policy.layout.space.contains(one)
    np.testing.assert_allclose(policy.value(obs), twin.value(obs), atol=1e-5)


def _actions(space, batch):
    from gymnasium.vector.utils import iterate

    for one in iterate(batch_space(space, 60), batch):
        yield int(one) if isinstance(space, spaces.Discrete) else one


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_numpy_acts_as_torch_does(observation, action):
    policy = _perturbed(make_policy(OBSERVATIONS[observation], ACTIONS[action], normalize_obs=True))
    assert isinstance(policy, NumpyPolicy)
    policy.model.observe(_observations(OBSERVATIONS[observation], seed=1))
    _assert_same(policy, _observations(OBSERVATIONS[observation]))


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (16,), (32, 16, 8)])
@pytest.mark.parametrize("core", ["none", "gru", "lstm"])
def test_numpy_networks_of_any_form_act_as_torch_does(activation, hidden_sizes, core):
    policy = make_policy(
        VECTOR, ACTIONS["box"], hidden_sizes=hidden_sizes, activation=activation, core=core
    )
    obs = _observations(VECTOR)
    twin = TorchPolicy.of(_perturbed(policy).model, VECTOR, np.random.default_rng(0))
    begins = np.arange(60) % 3 == 0
    for _ in range(3):
        ours, theirs = (p.act(obs, deterministic=True) for p in (policy, twin))
        np.testing.assert_allclose(ours.action, theirs.action, atol=1e-4)
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-4)
        for one in (policy, twin):
            one.begin_episodes(begins)
        if core != "none":
            np.testing.assert_allclose(policy.memory, twin.memory, atol=1e-5)
            assert not policy.memory[0].any() and policy.memory[1].any()


@pytest.mark.parametrize("dueling", [True, False])
def test_the_best_of_action_values_is_chosen_as_torch_does(dueling):
    policy = make_policy(
        VECTOR, ACTIONS["discrete"], num_exploration=1,
        build=lambda n, _, layout, g: QNetwork(n, layout.num_outputs, dueling=dueling, generator=g),
    )  # fmt: skip
    assert isinstance(policy, NumpyPolicy)
    obs = _observations(VECTOR)
    twin = TorchPolicy.of(_perturbed(policy).model, VECTOR, np.random.default_rng(0))
    expected = twin.act(obs, deterministic=True).action
    np.testing.assert_array_equal(policy.sample(obs, deterministic=True), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(policy)).sample(obs, True), expected)


def test_squashed_actions_are_drawn_as_torch_does():
    policy = make_policy(
        VECTOR, spaces.Box(-3, 5, (2,)), squashed=True,
        build=lambda n, _widths, _, g: SquashedActor(n, 2, generator=g),
    )  # fmt: skip
    assert isinstance(policy, NumpyPolicy)
    obs = _observations(VECTOR)
    twin = TorchPolicy.of(_perturbed(policy).model, VECTOR, np.random.default_rng(0))
    twin.rng, policy.rng = np.random.default_rng(5), np.random.default_rng(5)
    np.testing.assert_allclose(policy.sample(obs), twin.act(obs).action, atol=1e-5)


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize("action", ["discrete", "multi_discrete", "multi_binary", "joint"])
def test_masked_choices_are_never_drawn(action):
    num_choices = action_layout(ACTIONS[action]).num_choices
    space = spaces.Dict(action_mask=spaces.MultiBinary(num_choices), x=VECTOR)
    policy = _perturbed(make_policy(space, ACTIONS[action]))
    rng, obs = np.random.default_rng(0), _observations(space)
    mask = rng.random((60, num_choices)) < 0.5
    for part in policy.layout.parts:  # leave one choice at least in every component
        ends = np.cumsum([part.choices.start, *part.sizes])
        for start, stop in pairwise(ends):
            mask[np.arange(60), rng.integers(start, stop, 60)] = True
    obs["action_mask"][:] = mask
    _assert_same(policy, obs)
    if action == "discrete":
        for deterministic in (False, True):
            drawn = policy.act(obs, deterministic).action - 2
            assert mask[np.arange(60), drawn].all()


@pytest.mark.parametrize("part", [spaces.MultiBinary(3), spaces.Box(0, 1, (3,), np.int8)], ids=str)
def test_a_mask_among_the_observations_is_respected(part):
    space = spaces.Dict(action_mask=part, x=VECTOR)
    policy = _perturbed(make_policy(space, ACTIONS["discrete"]))
    obs = _observations(space)
    obs["action_mask"][:] = np.eye(3, dtype=np.int8)[np.arange(60) % 3]
    for deterministic in (False, True):
        step = policy.act(obs, deterministic)
        np.testing.assert_array_equal(step.action - 2, np.arange(60) % 3)
        np.testing.assert_allclose(step.log_prob, 0.0, atol=1e-6)


def test_a_part_named_mask_with_another_form_is_an_observation():
    space = spaces.Dict(action_mask=spaces.Box(-5, 5, (3,)), x=VECTOR)
    policy = make_policy(space, ACTIONS["discrete"])
    assert len(set(policy.act(_observations(space)).action)) == 3


# ---------------------------------------------------------------- seeds and travel


def test_acting_is_sampling_and_assessing():
    obs = np.zeros((4, 5), np.float32)
    policy, twin = (make_policy(VECTOR, spaces.Discrete(3), seed=7) for _ in range(2))
    step, action = policy.act(obs), twin.sample(obs)
    np.testing.assert_array_equal(step.action, action)
    np.testing.assert_array_equal(step.log_prob, twin.assess(obs, action)[0])
    np.testing.assert_array_equal(step.value, twin.value(obs))


def test_seeds_give_weights_and_actions():
    obs = np.zeros((32, 5), np.float32)
    one, same, other = (make_policy(VECTOR, spaces.Discrete(3), seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.model.parameters, same.model.parameters)
    np.testing.assert_array_equal(one.act(obs).action, same.act(obs).action)
    assert (one.model.parameters != other.model.parameters).any()


def test_initial_weights_are_orthogonal_and_the_first_actions_nearly_uniform():
    policy = make_policy(VECTOR, spaces.Discrete(4), hidden_sizes=(5, 5))
    weight = policy.model.module.network.towers[1].weight.detach().numpy()
    for tower in weight:
        np.testing.assert_allclose(tower @ tower.T, 2 * np.eye(5), atol=1e-5)
    step = policy.act(np.ones((10, 5), np.float32))
    np.testing.assert_allclose(step.log_prob, np.log(0.25), atol=0.05)


@pytest.mark.parametrize("kind", [rookery.PPOConfig, rookery.A2CConfig])
def test_initial_weights_can_be_uniform_as_torchs_own_are(kind):
    config = kind(orthogonal_init=False, hidden_sizes=(50, 25))
    one, same, other = (
        actor_critic_policy(config, VECTOR, ACTIONS["box"], seed).model.module.network
        for seed in (1, 1, 2)
    )
    drawn = [*one.towers, one.actor, one.critic]
    for layer, inputs in zip(drawn, (5, 50, 25, 25), strict=True):
        limit, weight = inputs**-0.5, layer.weight.detach()
        assert 0.8 * limit < weight.abs().max() <= limit
        assert 0 < layer.bias.abs().max() <= limit
        if weight.numel() > 200:
            assert weight.mean().abs() < 0.1 * limit
            assert float(weight.std()) == pytest.approx(limit / 3**0.5, rel=0.1)
    for name, parameter in one.named_parameters():
        assert (parameter == dict(same.named_parameters())[name]).all()
        assert (parameter != dict(other.named_parameters())[name]).any()


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_a_policy_survives_its_state(core):
    first, second = (
        make_policy(VECTOR, ACTIONS["box"], normalize_obs=True, core=core, seed=s) for s in (1, 2)
    )
    first.model.observe(_observations(VECTOR))
    second.model.load_state_dict(first.model.state_dict())
    obs = _observations(VECTOR, 3)
    np.testing.assert_array_equal(first.value(obs), second.value(obs))
    np.testing.assert_array_equal(first.act(obs, True).action, second.act(obs, True).action)
    other = make_policy(VECTOR, ACTIONS["box"], hidden_sizes=(9,))
    with pytest.raises(ValueError, match=r"has shape|is missing"):
        other.model.load_state_dict(first.model.state_dict())


def test_an_unknown_activation_is_refused():
    with pytest.raises(ConfigError, match="activation must be one of 'tanh', 'relu', got 'swish'"):
        make_policy(VECTOR, spaces.Discrete(2), activation="swish")


def test_a_pickled_policy_acts_without_torch():
    policy = make_policy(VECTOR, spaces.Discrete(2), normalize_obs=True)
    code = f"""
import sys, pickle, numpy as np
import rookery, rookery.collect, rookery.collect.actor
policy = pickle.loads({pickle.dumps(policy)!r})
policy.act(np.zeros((2, 5), np.float32))
print("torch" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "False", result.stderr
