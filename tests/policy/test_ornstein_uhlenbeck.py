"""Ornstein-Uhlenbeck noise against a plain loop, per env and episode."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery import ConfigError, TD3Config
from rookery.learn.off_policy.td3 import TD3
from rookery.policy.exploring import NoisyPolicy, OrnsteinUhlenbeckPolicy

OBS, BOX = spaces.Box(-1, 1, (4,)), spaces.Box(-2, 2, (2,))


def _policy(spaces_=(OBS, BOX), **settings):
    settings = {"exploration_noise_kind": "ornstein-uhlenbeck", "warmup_steps": 0, **settings}
    return TD3.make_policy(TD3Config(hidden_sizes=(8,), **settings), *spaces_, 0)  # type: ignore[call-arg]


def test_noise_equals_a_plain_loop():
    policy = _policy(exploration_noise=0.5)
    obs, rng = np.zeros((3, 4), np.float32), np.random.default_rng(7)
    policy.rng = np.random.default_rng(7)
    mean, x = policy.act(obs, deterministic=True).action, np.zeros((3, 2))
    for step in range(50):
        if step == 20:
            policy.begin_episodes(np.array([False, True, False]))
            x[1] = 0.0
        x = x - 0.15 * x * 0.01 + 0.5 * 0.1 * rng.standard_normal((3, 2), np.float32)
        np.testing.assert_allclose(policy.act(obs).action, np.clip(mean + x, -1, 1), atol=1e-5)
        policy.act(obs, deterministic=True)  # changes nothing


def test_copies_continue_equally_and_other_envs_start_at_zero():
    policy = _policy()
    obs = np.zeros((3, 4), np.float32)
    policy.act(obs)
    twin = pickle.loads(pickle.dumps(policy))
    assert isinstance(twin, OrnsteinUhlenbeckPolicy)
    np.testing.assert_array_equal(policy.act(obs).action, twin.act(obs).action)
    before = np.abs(policy.noise_state.values).max()
    policy.noise = 0.0
    policy.act(np.zeros((2, 4), np.float32))
    assert before > 0 and not policy.noise_state.values.any()


def test_the_kind_is_chosen_by_its_name():
    assert type(_policy(exploration_noise_kind="normal")) is NoisyPolicy
    with pytest.raises(ConfigError, match="ornstein-uhlenbeck"):
        TD3Config(exploration_noise_kind="pink")


def _pendulum():
    return gym.make("Pendulum-v1", max_episode_steps=6)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["caller", "worker"])
def test_noise_restarts_with_an_episode(where):
    with _pendulum() as env:
        policy = _policy((env.observation_space, env.action_space), exploration_noise=0.5)
    if where == "worker":
        collector = rookery.WorkerCollector(_pendulum, policy, 2, 1, 4, seed=0)
    else:
        venv = rookery.make_vec(_pendulum, 2, backend="serial", autoreset_mode="same_step")
        collector = rookery.SyncCollector(venv, policy, 4, seed=0)
    with collector if where == "worker" else venv:
        collector.collect()
        policy.noise = 0.0  # what was held stays, but for a share of it
        policy.version += 1
        rollout = collector.collect()
        greedy = policy.act(rollout.obs.reshape(8, 3), deterministic=True).action.reshape(4, 2, 1)
        assert (rollout.done == [[False], [True], [False], [False]]).all()
        assert (np.abs(rollout.action - greedy)[:2] > 1e-3).all()
        np.testing.assert_allclose(rollout.action[2:], greedy[2:], atol=1e-5)
