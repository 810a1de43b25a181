"""Learners whose parameters lie apart from the model's, as on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import A2CConfig, DQNConfig, PPOConfig, Rollout
from rookery.learn.a2c import A2C
from rookery.learn.adam import Adam
from rookery.learn.config import ImpalaConfig
from rookery.learn.dqn import DQN
from rookery.learn.feed import fed
from rookery.learn.impala import Impala
from rookery.learn.ppo import PPO
from rookery.learn.rmsprop import RMSProp
from rookery.policy import placement

T, B = 8, 4
IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-1, 1, (2,))
CASES = {
    "ppo": (PPO, PPOConfig(num_steps=T, num_epochs=1, minibatch_size=12), IMAGE, BOX),
    "a2c": (A2C, A2CConfig(num_steps=T), IMAGE, DISCRETE),
    "impala": (Impala, ImpalaConfig(num_steps=T), IMAGE, BOX),
    "dqn": (
        DQN,
        DQNConfig(
            warmup_steps=0,
            updates_per_step=0.125,
            batch_size=8,
            replay_size=400,
            target_interval=2,
            num_steps=T,
        ),
        IMAGE,
        DISCRETE,
    ),
    "recurrent": (
        PPO,
        PPOConfig(num_steps=T, num_epochs=2, minibatch_size=8, recurrent="gru", sequence_length=4),
        VECTOR,
        BOX,
    ),
}


def _rollout(policy, space) -> Rollout:
    rng = np.random.default_rng(0)
    if space is IMAGE:
        obs = rng.integers(0, 256, (T + 1, B, *space.shape), dtype=np.uint8)
    else:
        obs = rng.normal(size=(T + 1, B, *space.shape)).astype(np.float32)
    policy.begin_episodes(np.ones(B, np.bool_))
    steps = [policy.act(rows) for rows in obs[:-1]]
    rollout = Rollout.allocate(T, obs[0], steps[0].action)
    rollout.obs, rollout.last_obs = obs[:-1], obs[-1]
    for t, step in enumerate(steps):
        rollout.action[t], rollout.log_prob[t], rollout.value[t] = step
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.1
    if policy.is_recurrent:
        rollout.memory = np.zeros((B, 2 * policy.model.spec.memory_size), np.float32)
    return rollout


def _learned(case) -> tuple[np.ndarray, dict]:
    """Update twice, with a trip of the learner's state between; return weights and metrics."""
    make, config, space, action_space = CASES[case]
    policy = make.make_policy(config, space, action_space, seed=0)
    learner = make(policy, config, B)
    rollout = _rollout(policy, space)
    learner.update(rollout)
    other = make(policy, config, B)
    other.load_state_dict(learner.state_dict())
    if learner.keeps_replay:
        other.load_replay_state(learner.replay_state())
    return policy.model.parameters.copy(), other.update(rollout, 0.5)


@pytest.mark.parametrize("case", CASES)
def test_parameters_apart_learn_the_same(case, monkeypatch):
    weights, metrics = _learned(case)
    monkeypatch.setattr(placement, "shares_memory", lambda device: False)
    weights_apart, metrics_apart = _learned(case)
    np.testing.assert_allclose(weights_apart, weights, rtol=1e-3, atol=1e-5)
    assert metrics_apart == pytest.approx(metrics, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("optimizer", [Adam, RMSProp])
def test_an_optimiser_steps_a_tensor_as_it_steps_an_array(optimizer):
    rng = np.random.default_rng(0)
    start, *gradients = rng.normal(size=(6, 50)).astype(np.float32)
    array, tensor = start.copy(), torch.from_numpy(start.copy())
    one, other = optimizer(array), optimizer(tensor)
    for gradient in gradients[:3]:
        one.step(gradient, 1e-2)
        other.step(torch.from_numpy(gradient), 1e-2)
    swapped, swapped_tensor = optimizer(array), optimizer(tensor)
    swapped.load_state_dict(other.state_dict())
    swapped_tensor.load_state_dict(one.state_dict())
    for gradient in gradients[3:]:
        swapped.step(gradient, 1e-2)
        swapped_tensor.step(torch.from_numpy(gradient), 1e-2)
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_minibatch_is_sent_before_the_one_ahead_of_it_is_learned_from():
    config = PPOConfig(num_steps=T, minibatch_size=T)
    policy = PPO.make_policy(config, VECTOR, DISCRETE, seed=0)
    learner = PPO(policy, config, B)
    whole = learner._batch(_rollout(policy, VECTOR))
    parts = [whole.take(np.arange(i, i + T)) for i in range(0, T * B, T)]
    events = []

    class Carrier:
        def send(self, features):
            number = sum(name == "send" for name, _ in events)
            events.append(("send", number))
            return lambda: number

    for batch in fed(parts, Carrier()):
        events.append(("learn", batch.features))
    order = ["send 0", "send 1", "learn 0", "send 2", "learn 1", "send 3", "learn 2", "learn 3"]
    assert [f"{name} {number}" for name, number in events] == order
