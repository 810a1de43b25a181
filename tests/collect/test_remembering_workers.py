"""Policies that remember, in workers: each keeps the memories of its own envs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rookery
from rookery import A2CConfig, ConfigError, ImpalaConfig, PPOConfig, Rollout
from rookery.common.trees import tree_map
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.batches import actions_of, advantage_batch, evaluate
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO
from rookery.policy.torch.torch_policy import TorchPolicy
from rookery.rollout.rollout import side_by_side
from rookery.run.checks import FiniteRollouts

T = 12
CORES = ["gru", "lstm"]
NUMBERS = spaces.Box(-1, 1, (3,))
PICTURES = spaces.Dict(eye=spaces.Box(0, 255, (12, 12, 3), np.uint8), ear=NUMBERS)


class Wander(gym.Env[Any, Any]):
    """Random observations; episodes are terminated or truncated after a few steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space: Any = NUMBERS) -> None:
        self.observation_space = observation_space

    def _obs(self) -> Any:
        ear = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        if self.observation_space == NUMBERS:
            return ear
        return {"eye": self.np_random.integers(0, 256, (12, 12, 3), np.uint8), "ear": ear}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        draw = self.np_random.random()
        return self._obs(), float(draw), bool(draw < 0.1), bool(draw > 0.8), {}


def _config(core: str) -> PPOConfig:
    return PPOConfig(num_steps=T, recurrent=core, memory_size=5, sequence_length=4)


def _policy(core: str, observation_space: Any = NUMBERS) -> Any:
    policy = PPO.make_policy(_config(core), observation_space, spaces.Discrete(2), 0)
    noise = np.random.default_rng(1).normal(size=policy.model.parameters.shape) * 0.1
    policy.model.parameters += noise.astype(np.float32)
    return policy


def _learn(policy: Any) -> None:
    policy.model.parameters += np.float32(0.01)
    policy.version += 1


def _assert_same(actual: Rollout, expected: Rollout) -> None:
    for field in fields(Rollout):
        pair = getattr(actual, field.name), getattr(expected, field.name)
        tree_map(lambda a, b, n=field.name: np.testing.assert_array_equal(a, b, n), *pair)


@pytest.mark.slow
@pytest.mark.parametrize("space", [NUMBERS, PICTURES], ids=["numbers", "pictures"])
@pytest.mark.parametrize("core", CORES)
def test_one_worker_remembers_what_the_caller_would(core: str, space: Any) -> None:
    kwargs = {"observation_space": space}
    torch.set_num_threads(1)  # as in workers: a sum's order depends on it
    own, theirs = _policy(core, space), _policy(core, space)
    assert isinstance(own, TorchPolicy) == (space is PICTURES)
    venv = rookery.make_vec(Wander, 3, "serial", autoreset_mode="same_step", env_kwargs=kwargs)
    reference = rookery.SyncCollector(venv, own, T, seed=7)
    with rookery.WorkerCollector(
        Wander, theirs, 3, 1, T, seed=7, env_kwargs=kwargs
    ) as collector:  # fmt: skip
        for k in range(3):
            actual, expected = collector.collect(), reference.collect()
            _assert_same(actual, expected)
            assert actual.memory.shape == (3, own.memory_width)
            assert actual.memory.any() == (k > 0)
            _learn(own)
            _learn(theirs)
    venv.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("core", CORES)
def test_learners_see_what_the_workers_saw(core: str, mode: str) -> None:
    """The network, run again from the memory that the rollout begins with, says the same."""
    policy = _policy(core)
    ppo = PPO(policy, _config(core), 5)
    impala = Impala(policy, ImpalaConfig(num_steps=T, recurrent=core, memory_size=5), 5)
    with rookery.WorkerCollector(Wander, policy, 5, 2, T, mode, seed=0) as collector:
        for _ in range(6):
            rollout = collector.collect()
            assert rollout.done[:-1].any()
            batch = advantage_batch(rollout, rollout.reward, ppo._place, 0.99, 0.95, 4)
            steps = batch.steps()
            now = evaluate(ppo._place, steps)
            np.testing.assert_allclose(now.log_prob.detach(), steps.log_prob, atol=1e-5)
            np.testing.assert_allclose(now.value.detach(), steps.value, atol=1e-5)
            present = impala.evaluate(rollout)
            np.testing.assert_allclose(present.last_value, rollout.last_value, atol=1e-5)
            drawn = policy.model.module.distribution(present.outputs)
            log_prob = drawn.log_prob(actions_of(rollout, impala._place)).detach()
            np.testing.assert_allclose(log_prob, rollout.log_prob.ravel(), atol=1e-5)


class Blink(Wander):
    """Shows a NaN after the last step of the first rollout; its episodes do not end."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *_ = super().step(action)
        self.count = getattr(self, "count", 0) + 1
        if self.count == T:
            obs[1] = np.nan
        return obs, reward, False, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_nan_in_workers_costs_the_transitions_from_it_and_to_it(mode: str) -> None:
    policy, finite = _policy("gru"), FiniteRollouts()
    with rookery.WorkerCollector(Blink, policy, 2, 1, T, mode, seed=0) as collector:
        for k in range(3):
            rollout = collector.collect()
            finite.check(rollout)
            expected = np.ones((T, 2), np.bool_)
            if k < 2:
                expected[-1 if k == 0 else 0] = False
            np.testing.assert_array_equal(rollout.valid, expected)
            for column in (rollout.log_prob, rollout.value, rollout.last_obs, rollout.memory):
                assert np.isfinite(column).all()


@pytest.mark.slow
def test_one_async_worker_remembers_what_a_sync_one_does_under_constant_weights() -> None:
    rollouts = {}
    for mode in ("sync", "async"):
        with rookery.WorkerCollector(Wander, _policy("gru"), 3, 1, T, mode, seed=2) as collector:
            rollouts[mode] = [side_by_side([collector.collect()]) for _ in range(4)]
    for actual, expected in zip(rollouts["async"], rollouts["sync"], strict=True):
        _assert_same(actual, expected)


class Remembering(rookery.Policy):
    """Counts the steps of each env's episode, and says the count as its value; has no size."""

    is_recurrent = True

    def act(self, obs: Any, deterministic: bool = False, mask: Any = None) -> Any:
        assert self.memory is not None
        self.memory = self.memory + 1
        zeros = np.zeros(len(obs), np.float32)
        return rookery.PolicyStep(zeros.astype(np.int64), zeros, self.memory[:, 0])

    def value(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.float32)

    def begin_episodes(self, env_ids: Any) -> None:
        before = np.zeros((len(env_ids), 1), np.float32)
        if self.memory is not None and len(self.memory) == len(env_ids):
            before = self.memory
        self.memory = np.where(env_ids[:, None], np.float32(0), before)


@pytest.mark.slow
def test_a_custom_recurrent_policy_works() -> None:
    policy = Remembering()
    policy.memory = np.full((7, 1), 9.0, np.float32)  # of other envs, elsewhere
    with rookery.WorkerCollector(Wander, policy, 4, 2, T, seed=0) as collector:
        count = np.zeros(4)
        for _ in range(3):
            rollout = collector.collect()
            np.testing.assert_array_equal(rollout.memory[:, 0], count)
            for t in range(T):
                count += 1
                np.testing.assert_array_equal(rollout.value[t], count)
                count[rollout.done[t]] = 0
    assert policy.memory.shape == (7, 1)  # nor is the caller's own memory touched


class Forgetful(Remembering):
    def begin_episodes(self, env_ids: Any) -> None:
        return


def test_a_policy_that_does_not_show_its_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Forgetful.*begin_episodes"):
        rookery.WorkerCollector(Wander, Forgetful(), 2, 1, T)


class Recall(gym.Env[Any, Any]):
    """Shows one of two signs at first, and asks for it three steps later."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._sign, self._t = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        obs = np.array([0, self._t == 3], np.float32)
        reward = float(self._t == 4 and action == self._sign)
        return obs, reward, self._t == 4, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "mode", "core", "updates"),
    [
        ("ppo", "sync", "lstm", 60),
        pytest.param("a2c", "sync", "gru", 250, marks=pytest.mark.whole),  # alone, it learns it too
        ("impala", "async", "gru", 500),
    ],
)
def test_a_sign_is_remembered(algorithm: str, mode: Any, core: str, updates: int) -> None:
    torch.set_num_threads(1)
    shared: Any = {"num_steps": 16, "recurrent": core, "memory_size": 16}
    kind, config = {
        "ppo": (PPO, PPOConfig(
            **shared, sequence_length=16, num_epochs=4, learning_rate=5e-3, minibatch_size=128,
            entropy_coef=0.01,
        )),
        "a2c": (A2C, A2CConfig(
            **shared, learning_rate=5e-3, gae_lambda=0.95, normalize_advantage=True, rms_decay=0.9
        )),
        "impala": (Impala, ImpalaConfig(**shared, learning_rate=5e-3)),
    }[algorithm]  # fmt: skip
    policy = kind.make_policy(config, Recall.observation_space, Recall.action_space, 0)
    learner = kind(policy, config, 16)
    scores = []
    with rookery.WorkerCollector(Recall, policy, 16, 2, config.num_steps, mode, seed=0) as workers:
        for k in range(updates):
            rollout = workers.collect()
            learner.update(rollout, k / updates)
            policy.version += 1
            scores.append(rollout.reward.sum() / rollout.done.sum())
    assert np.mean(scores[:3]) < 0.7
    assert np.mean(scores[-10:]) > 0.9
