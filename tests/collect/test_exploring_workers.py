"""Policies of learners from replay in workers: the way of exploring travels with the weights."""

from __future__ import annotations

import pickle
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery import DQNConfig, PPOConfig, QRDQNConfig, SACConfig, TD3Config
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.off_policy.qrdqn import QRDQN
from rookery.learn.off_policy.sac import SAC
from rookery.learn.off_policy.td3 import TD3
from rookery.learn.on_policy.actor_critic import actor_critic_policy

KINDS = {
    "dqn": (DQN, DQNConfig(hidden_sizes=(8,)), "CartPole-v1"),
    "qrdqn": (QRDQN, QRDQNConfig(hidden_sizes=(8,), num_quantiles=5), "CartPole-v1"),
    "sac": (SAC, SACConfig(hidden_sizes=(8,)), "Pendulum-v1"),
    "sac held noise": (
        SAC,
        SACConfig(hidden_sizes=(8,), state_dependent_noise=True, noise_interval=5),
        "Pendulum-v1",
    ),
    "td3": (TD3, TD3Config(hidden_sizes=(8,)), "Pendulum-v1"),
    "td3 wandering noise": (
        TD3,
        TD3Config(hidden_sizes=(8,), exploration_noise_kind="ornstein-uhlenbeck"),
        "Pendulum-v1",
    ),
}


def _policy(name: str, seed: int = 0):
    learner, config, env = KINDS[name]
    with rookery.make_vec(env, 1, backend="serial") as venv:
        both = venv.single_observation_space, venv.single_action_space
    policy = learner.make_policy(config, *both, seed)
    rng = np.random.default_rng(1)
    policy.model.parameters += rng.normal(0, 0.3, policy.model.parameters.shape).astype(np.float32)
    return policy, env


def _explore(policy, much: bool) -> None:
    if hasattr(policy, "epsilon"):
        policy.epsilon = float(much)
    else:
        policy.is_uniform = much
        if hasattr(policy, "noise"):
            policy.noise = 0.0


def _greedy(policy, rollout) -> np.ndarray:
    obs = rollout.obs.reshape(-1, *rollout.obs.shape[2:])
    return policy.act(obs, deterministic=True).action.reshape(rollout.action.shape)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", ["dqn", "qrdqn", "td3"])
def test_workers_receive_exploration_with_the_weights(name: str, mode: str):
    policy, env = _policy(name)
    _explore(policy, True)
    collector = rookery.WorkerCollector(env, policy, 4, 2, 10, mode=mode, seed=0)
    with collector:
        rollout = collector.collect()
        assert not np.allclose(rollout.action, _greedy(policy, rollout), atol=1e-4)
        _explore(policy, False)
        policy.version += 1
        for _ in range(20):
            rollout = collector.collect()
            if (rollout.policy_version == policy.version).all():
                break
        np.testing.assert_allclose(rollout.action, _greedy(policy, rollout), atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_one_worker_acts_as_the_caller_does(name: str):
    policy, env = _policy(name)
    _explore(policy, False)
    twin, _ = _policy(name)
    _explore(twin, False)
    with rookery.make_vec(
        env, 3, backend="serial", autoreset_mode="same_step"
    ) as venv, rookery.WorkerCollector(env, policy, 3, 1, 8, seed=5) as workers:  # fmt: skip
        caller = rookery.SyncCollector(venv, twin, 8, seed=[5, 6, 7], values=False)
        for _ in range(3):
            ours, theirs = workers.collect(), caller.collect()
            np.testing.assert_array_equal(ours.action, theirs.action)
            np.testing.assert_array_equal(ours.obs, theirs.obs)


def test_copies_draw_numbers_of_their_own():
    policy, env = _policy("sac")
    _explore(policy, True)
    with rookery.WorkerCollector(env, policy, 4, 2, 10, seed=0) as collector:
        action = collector.collect().action
    assert np.abs(action).max() <= 1.0
    assert not np.allclose(action[:, :2], action[:, 2:])


@pytest.mark.slow
def test_every_worker_has_state_dependent_noise_of_its_own():
    """Envs that all show the same state: what is added to the mean is the noise alone."""
    with rookery.make_vec("Pendulum-v1", 1, backend="serial") as venv:
        both = venv.single_observation_space, venv.single_action_space
    config = PPOConfig(state_dependent_noise=True, num_steps=6, noise_interval=100)
    policy = actor_critic_policy(config, *both, 0)
    with rookery.WorkerCollector(Still, policy, 4, 2, 6, seed=0) as collector:
        for _ in range(2):
            rollout = collector.collect()
            action = rollout.action[..., 0]
            assert (action == action[0]).all()  # kept from step to step
            assert len(np.unique(action[0])) == 4
            log_prob, value = policy.assess(
                rollout.obs.reshape(24, 3), rollout.action.reshape(24, 1)
            )
            np.testing.assert_allclose(rollout.log_prob.ravel(), log_prob, atol=1e-5)
            np.testing.assert_allclose(rollout.value.ravel(), value, atol=1e-5)


class Still(gym.Env):
    """Shows one state for ever."""

    observation_space = spaces.Box(-8, 8, (3,))
    action_space = spaces.Box(-2, 2, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(3, np.float32), {}

    def step(self, action):
        return np.ones(3, np.float32), 0.0, False, False, {}


def test_small_networks_need_no_torch_in_workers():
    policy, _ = _policy("qrdqn")
    code = (
        "import pickle, sys; p = pickle.loads(sys.stdin.buffer.read()); import numpy as np; "
        "p.act(np.zeros((2, 4), 'f4')); print('torch' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(policy), capture_output=True, check=True
    )
    assert run.stdout.split() == [b"False"]


def test_images_are_acted_on_in_workers_too():
    image = spaces.Box(0, 255, (20, 20, 3), np.uint8)
    policy = DQN.make_policy(DQNConfig(), image, spaces.Discrete(2), 0)
    copy = pickle.loads(pickle.dumps(policy))
    copy.epsilon = policy.epsilon = 0.0
    policy.model.parameters += np.float32(0.01)
    copy.model.parameters[...] = policy.model.parameters
    copy.model.set_extras(policy.model.extras())
    obs = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    np.testing.assert_array_equal(copy.act(obs).action, policy.act(obs).action)
