"""The TD3 learner: smoothing, delay and losses against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, disturb, made_up_rollout, moved, numbers

from rookery import ConfigError, SpaceError, TD3Config
from rookery.learn.off_policy.td3 import TD3

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-2, 4, (2,))
SMALL = {"num_steps": T, "batch_size": 16, "warmup_steps": 0, "hidden_sizes": (8, 8)}


def _learner(observation_space=OBS, **settings):
    config = TD3Config(**{**SMALL, **settings})
    policy = TD3.make_policy(config, observation_space, ACTIONS, seed=0)
    learner = TD3(policy, config, B)
    flats = policy.model.flat, learner._critic_flat
    for seed, flat in enumerate((*flats, learner._target_critics.flat, learner._target_actor.flat)):
        disturb(flat, seed)
    return policy, learner


def _rollout(seed: int = 0, observation_space=OBS):
    return made_up_rollout(observation_space, ACTIONS, seed)


@pytest.mark.parametrize("noise", [0.1, 3.0])
def test_targets_are_those_of_a_plain_loop(noise: float):
    _, learner = _learner(gamma=0.5, updates_per_step=0.0, target_noise=noise)
    learner.update(_rollout())
    batch = learner._sample()
    drawn = torch.randn((16, 2), generator=numbers(learner)).numpy()
    got = learner._targets(batch)
    for k in range(16):
        row = batch.next_obs[k : k + 1]
        with torch.no_grad():
            outputs = learner._target_actor.module(row).outputs[0].numpy()
        smoothed = np.tanh(outputs[:2]) + np.clip(noise * drawn[k], -0.5, 0.5)
        action = torch.from_numpy(np.clip(smoothed, -1.0, 1.0).astype(np.float32))
        with torch.no_grad():
            first, second = learner._target_critics.module(row, action[None])[:, 0].tolist()
        expected = float(batch.reward[k]) + float(batch.discount[k]) * min(first, second)
        assert float(got[k]) == pytest.approx(expected, abs=1e-5)


def test_a_step_follows_the_gradients_of_both_losses(monkeypatch):
    _, learner = _learner(updates_per_step=0.0, policy_delay=1)
    learner.update(_rollout())
    found = learner._replay.sample(16, np.random.default_rng(0))
    monkeypatch.setattr(learner._replay, "sample", lambda *args: found)
    batch, state = learner._on_device(found), learner._noise.get_state()
    target = learner._targets(batch)
    learner._noise.set_state(state)
    values = learner._critics(batch.obs, batch.action)
    loss = torch.nn.functional.mse_loss(values[0], target)
    loss = loss + torch.nn.functional.mse_loss(values[1], target)
    critic = torch.autograd.grad(loss, list(learner._critics.parameters()))
    action = torch.tanh(learner.actor(batch.obs).outputs[:, :2])
    policy_loss = -learner._critics(batch.obs, action)[0].mean()
    actor = torch.autograd.grad(policy_loss, list(learner.actor.parameters()))
    seen = moved(learner._critic_optimizer), moved(learner._actor_optimizer)
    metrics = learner._step(0.0)
    for got, expected in zip(seen, (critic, actor), strict=True):
        torch.testing.assert_close(got[0], torch.cat([g.reshape(-1) for g in expected]))
    assert metrics["value_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert metrics["policy_loss"] == pytest.approx(float(policy_loss.detach()), rel=1e-5)


def test_actor_and_targets_move_once_in_so_many_steps_of_the_critics():
    policy, learner = _learner(updates_per_step=0.0, policy_delay=3, target_rate=0.5)
    learner.update(_rollout())
    watched = learner._critic_flat, policy.model.flat, learner._target_actor.flat
    watched = (*watched, learner._target_critics.flat)
    changes = []
    for _ in range(6):
        before = [flat.tensor.clone() for flat in watched]
        with learner.placement.learning():
            learner._step(0.0)
        changes.append([not torch.equal(b, f.tensor) for b, f in zip(before, watched, strict=True)])
    assert changes == [[True] + 3 * [k % 3 == 2] for k in range(6)]


def test_exploration_is_noise_around_the_mean_within_the_bounds():
    policy, learner = _learner(exploration_noise=0.3, warmup_steps=T * B, updates_per_step=0.1)
    obs = np.zeros((4000, 3), np.float32)
    assert policy.is_uniform
    learner.update(_rollout())
    assert not policy.is_uniform
    policy.model.parameters *= np.float32(0.1)
    mean, drawn = (policy.act(obs, deterministic).action for deterministic in (True, False))
    assert (drawn - mean).std() == pytest.approx(0.3, abs=0.02)
    assert np.abs(drawn).max() <= 1.0


def test_the_higher_reward_is_found():
    sizes = {**SMALL, "hidden_sizes": (32, 32)}
    config = TD3Config(**sizes, learning_rate=3e-3, updates_per_step=2.0, gamma=0.2)
    policy = TD3.make_policy(config, OBS, ACTIONS, seed=0)
    learner = TD3(policy, config, B)
    for seed in range(40):
        rollout = _rollout(seed)
        rollout.reward[:] = -np.square(rollout.action - 0.5).sum(axis=2)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    action = policy.act(obs, deterministic=True).action
    np.testing.assert_allclose(action.mean(axis=0), 0.5, atol=0.15)


def test_images_are_learned_from():
    space = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    policy, learner = _learner(space, updates_per_step=0.2)
    before = policy.model.parameters.copy()
    assert learner.update(_rollout(0, space))["gradient_steps"] == 2.0
    assert (policy.model.parameters != before).any()


def test_a_learner_goes_on_from_its_state():
    policy, learner = _learner(updates_per_step=0.5)
    learner.update(_rollout(1))
    other_policy, other = _learner(updates_per_step=0.5)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    rollout = _rollout(2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


def test_what_cannot_be_is_refused():
    with pytest.raises(SpaceError, match="Box of floats"):
        TD3.make_policy(TD3Config(), OBS, spaces.Discrete(2), seed=0)
    with pytest.raises(ConfigError, match="policy_delay"):
        TD3Config(policy_delay=0)
