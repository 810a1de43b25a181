"""The DQN learner: targets and gradients against numbers worked out one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import ConfigError, DQNConfig, Rollout, SpaceError
from rookery.learn import losses
from rookery.learn.budget import UpdateBudget
from rookery.learn.dqn import DQN, action_values, action_values_backward

T, B = 4, 3
OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(3, start=1)
SMALL = {"num_steps": T, "batch_size": 16, "warmup_steps": 0, "hidden_sizes": (8,)}


def _learner(observation_space=OBS, **settings):
    config = DQNConfig(**{**SMALL, **settings})
    policy = DQN.make_policy(config, observation_space, ACTIONS, seed=0)
    return policy, DQN(policy, config, B)


def _rollout(seed: int = 0, observation_space=OBS) -> Rollout:
    rng = np.random.default_rng(seed)
    observation_space.seed(seed)
    obs = np.array([[observation_space.sample() for _ in range(B)] for _ in range(T + 1)])
    rollout = Rollout.allocate(T, obs[0], np.zeros(B, np.int64))
    rollout.obs, rollout.last_obs = obs[:-1], obs[-1]
    rollout.action[:] = rng.integers(1, 4, (T, B))
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.2
    return rollout


def test_dueling_gives_the_numbers_worked_out_by_hand():
    outputs, value = np.array([[1, 2, 6]], np.float32), np.array([10], np.float32)
    np.testing.assert_allclose(action_values(outputs, value, True), [[8, 9, 13]])
    np.testing.assert_allclose(action_values(outputs, value, False), outputs)
    d_outputs, d_value = action_values_backward(np.array([[0, 3, 0]], np.float32), True)
    np.testing.assert_allclose(d_outputs, [[-1, 2, -1]])
    np.testing.assert_allclose(d_value, [3])


def test_the_huber_loss_gives_the_numbers_worked_out_by_hand():
    value, target = np.array([1.5, 5, -4], np.float32), np.array([1, 2, 0], np.float32)
    loss = losses.huber_loss(value, target, np.array([1, 0.5, 2], np.float32))
    assert loss.mean == pytest.approx((0.125 + 0.5 * 2.5 + 2 * 3.5) / 3)
    np.testing.assert_allclose(loss.gradient, np.array([0.5, 0.5, -2]) / 3, rtol=1e-6)


@pytest.mark.parametrize("double", [False, True])
def test_targets_are_those_of_a_plain_loop(double: bool):
    policy, learner = _learner(double=double, dueling=False, gamma=0.5, n_step=1)
    for seed in range(3):
        learner.update(_rollout(seed))  # the online network leaves the target's behind
    batch = learner._replay.sample(50, np.random.default_rng(0))
    online, target = learner._network, learner._target_network
    for k, got in enumerate(learner._targets(batch)):
        features = policy.model.encode(batch.next_obs[k : k + 1])
        theirs = target.forward(features).outputs[0].copy()
        mine = online.forward(features).outputs[0]
        best = theirs[mine.argmax()] if double else theirs.max()
        expected = batch.reward[k] + batch.discount[k] * best
        assert got == pytest.approx(expected, abs=1e-5)
    assert set(batch.discount.tolist()) == {0.0, 0.5}


@pytest.mark.parametrize("dueling", [False, True])
def test_a_step_follows_the_gradient_that_torch_finds(dueling: bool, monkeypatch):
    from rookery.policy.torch_network import TorchNetwork

    policy, learner = _learner(dueling=dueling, prioritized=True, updates_per_step=0.0)
    learner.update(_rollout())
    batch = learner._replay.sample(16, np.random.default_rng(0), 0.5)
    monkeypatch.setattr(learner._replay, "sample", lambda *args: batch)
    target = torch.from_numpy(learner._targets(batch))
    network = TorchNetwork(policy.model)
    outputs, value = network.tensors(policy.model.encode(batch.obs))
    if dueling:
        outputs = value[:, None] + outputs - outputs.mean(1, keepdim=True)
    chosen = outputs[torch.arange(16), torch.from_numpy(batch.action - 1)]
    errors = torch.nn.functional.huber_loss(chosen, target, reduction="none")
    loss = (torch.from_numpy(batch.weight) * errors).mean()
    (expected,) = torch.autograd.grad(loss, network.placement.flat)
    seen = []
    monkeypatch.setattr(learner._optimizer, "step", lambda g, rate: seen.append(g.copy()))
    metrics = learner._step(1e-3, 0.5)
    np.testing.assert_allclose(seen[0], expected, atol=1e-6)
    assert metrics["value_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{}, {"double": False, "dueling": False}, {"n_step": 4, "prioritized": True}],
    ids=str,
)
def test_the_best_action_is_found(settings):
    policy, learner = _learner(**settings, learning_rate=1e-2, updates_per_step=1.0, gamma=0.5)
    for seed in range(40):
        rollout = _rollout(seed)
        rollout.reward[:] = np.where(rollout.action == 2, 1.0, -1.0)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    assert (policy.act(obs, deterministic=True).action == 2).mean() > 0.95


def test_images_are_learned_from_through_torch():
    image = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    policy, learner = _learner(image, updates_per_step=0.1)
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(0, image))
    assert metrics["gradient_steps"] == 1.0
    assert (policy.model.parameters != before).any()
    assert np.isfinite(policy.model.parameters).all()


def test_epsilon_falls_linearly_and_decides_how_often_actions_are_random():
    policy, learner = _learner(exploration_fraction=0.5, final_epsilon=0.2, updates_per_step=0.0)
    assert policy.epsilon == 1.0
    learner.update(_rollout(), progress=0.25)
    assert policy.epsilon == pytest.approx(0.6)
    learner.update(_rollout(), progress=0.9)
    assert policy.epsilon == pytest.approx(0.2)
    obs = np.zeros((9000, 3), np.float32)
    best = policy.act(obs[:1], deterministic=True).action
    other = (policy.act(obs).action != best).mean()
    assert other == pytest.approx(0.2 * 2 / 3, abs=0.02)


@pytest.mark.parametrize("num_envs", [1, 6, 64])
def test_the_ratio_of_gradient_steps_does_not_depend_on_the_number_of_envs(num_envs: int):
    budget = UpdateBudget(0.3, warmup_steps=100)
    spent = [budget.spend(num_envs) for _ in range(640 // num_envs)]
    seen = 640 // num_envs * num_envs
    assert sum(spent) == int((seen - 100) * 0.3)
    assert max(spent) <= int(num_envs * 0.3) + 1


def test_the_target_network_follows_every_so_many_steps():
    policy, learner = _learner(target_interval=5, updates_per_step=0.25)
    before = learner._target.parameters.copy()
    learner.update(_rollout(0))  # three gradient steps
    np.testing.assert_array_equal(learner._target.parameters, before)
    learner.update(_rollout(1))
    assert (learner._target.parameters != before).any()
    assert (learner._target.parameters != policy.model.parameters).any()


def test_faulted_rows_alone_bring_no_gradient_step():
    _, learner = _learner(updates_per_step=1.0)
    rollout = _rollout()
    rollout.valid[:] = False
    assert learner.update(rollout)["gradient_steps"] == 0.0


def test_a_learner_goes_on_from_its_state():
    settings = {"updates_per_step": 0.5, "prioritized": True}
    policy, learner = _learner(**settings)
    learner.update(_rollout(1))
    other_policy, other = _learner(**settings)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    rollout = _rollout(2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


def test_other_actions_than_discrete_ones_are_refused():
    with pytest.raises(SpaceError, match="Discrete"):
        DQN.make_policy(DQNConfig(), OBS, spaces.Box(-1, 1, (2,)), seed=0)


@pytest.mark.parametrize(
    "wrong", [{"n_step": 0}, {"final_epsilon": 2.0}, {"target_rate": -1.0}], ids=str
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DQNConfig(**wrong)


def test_a_replay_too_small_for_one_call_is_refused():
    with pytest.raises(ConfigError, match="replay_size"):
        _learner(replay_size=5)
