"""Policies that remember: what acting and learning see, for every algorithm on policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rookery
from rookery import A2CConfig, ConfigError, ImpalaConfig, PPOConfig, Rollout
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO, actions_of, advantage_batch, evaluate
from rookery.policy.torch.torch_policy import TorchPolicy
from rookery.run.checks import FiniteRollouts

OBS = spaces.Box(-1, 1, (3,))
IMAGE = spaces.Dict(eye=spaces.Box(0, 255, (12, 12, 3), np.uint8), ear=OBS)
CORES = ["gru", "lstm"]


def _config(core: str = "gru", **settings: Any) -> PPOConfig:
    return PPOConfig(
        num_steps=12, recurrent=core, memory_size=5, sequence_length=4, num_epochs=2,
        minibatch_size=12, **settings,
    )  # fmt: skip


class Wander(gym.Env[Any, Any]):
    """Random observations; episodes are terminated or truncated after a few steps."""

    def __init__(self, observation_space: Any = OBS, action_space: Any = None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)

    def _obs(self):
        ear = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        if self.observation_space == OBS:
            return ear
        return {"eye": self.np_random.integers(0, 256, (12, 12, 3), np.uint8), "ear": ear}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        draw = self.np_random.random()
        return self._obs(), float(draw), draw < 0.1, draw > 0.8, {}


def _policy(core: str = "gru", observation_space: Any = OBS, action_space: Any = None, **settings):
    config = _config(core, **settings)
    policy = PPO.make_policy(config, observation_space, action_space or spaces.Discrete(2), 0)
    noise = np.random.default_rng(1).normal(size=policy.model.parameters.shape) * 0.1
    policy.model.parameters += noise.astype(np.float32)
    return policy


def _rollouts(
    policy,
    count: int = 2,
    observation_space: Any = OBS,
    action_space: Any = None,
    env: Any = Wander,
):
    venv = rookery.make_vec(
        env, 3, "serial", autoreset_mode="same_step",
        env_kwargs={"observation_space": observation_space, "action_space": action_space},
    )  # fmt: skip
    collector = rookery.SyncCollector(venv, policy, 12, seed=0)
    rollouts = [collector.collect() for _ in range(count)]
    venv.close()
    return rollouts


def _batch(rollout: Rollout, policy, length: int = 4):
    place = PPO(policy, _config(), 3)._place
    return advantage_batch(rollout, rollout.reward, place, 0.99, 0.95, length), place


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("action_space", [spaces.Discrete(2), spaces.Box(-1, 1, (2,))], ids=str)
@pytest.mark.parametrize("hidden_sizes", [None, (7,)])
def test_learning_sees_what_acting_saw(core, action_space, hidden_sizes):
    policy = _policy(core, action_space=action_space, hidden_sizes=hidden_sizes)
    assert not isinstance(policy, TorchPolicy)
    for rollout in _rollouts(policy, action_space=action_space):
        assert rollout.done.any() and not rollout.done.all()
        batch, place = _batch(rollout, policy)
        steps = batch.steps()
        now = evaluate(place, steps)
        np.testing.assert_allclose(now.log_prob.detach(), steps.log_prob, atol=1e-5)
        np.testing.assert_allclose(now.value.detach(), steps.value, atol=1e-5)


@pytest.mark.parametrize("core", CORES)
def test_memories_behind_images_see_what_acting_saw(core):
    policy = _policy(core, IMAGE)
    assert isinstance(policy, TorchPolicy)
    for rollout in _rollouts(policy, observation_space=IMAGE):
        batch, place = _batch(rollout, policy)
        steps = batch.steps()
        now = evaluate(place, steps)
        np.testing.assert_allclose(now.value.detach(), steps.value, rtol=1e-4, atol=1e-4)


class Blink(Wander):
    """Shows a NaN in the third step; its episodes do not end."""

    def step(self, action):
        obs, reward, *_ = super().step(action)
        self.count = getattr(self, "count", 0) + 1
        if self.count == 3:
            (obs if self.observation_space == OBS else obs["ear"])[1] = np.nan
        return obs, reward, False, False, {}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("space", [OBS, IMAGE], ids=["numbers", "images"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_nan_costs_its_transition_and_not_what_is_remembered(core, space):
    policy = _policy(core, space, spaces.Box(-1, 1, (2,)))
    for count, rollout in enumerate(
        _rollouts(policy, 2, space, spaces.Box(-1, 1, (2,)), env=Blink)
    ):
        FiniteRollouts().check(rollout)
        expected = np.ones((12, 3), np.bool_)
        expected[2:4] = count > 0
        np.testing.assert_array_equal(rollout.valid, expected)
        batch, place = _batch(rollout, policy)
        steps = batch.steps()
        now = evaluate(place, steps)
        np.testing.assert_allclose(now.log_prob.detach(), steps.log_prob, atol=1e-4)
        np.testing.assert_allclose(now.value.detach(), steps.value, rtol=1e-4, atol=1e-4)


class Forgetful(rookery.Policy):
    """A policy of the user's that remembers the sum of what it was shown, NaN and all."""

    is_recurrent = True

    def act(self, obs, deterministic=False):
        self.memory = self.memory + obs.sum(axis=1, keepdims=True)
        value = self.memory[:, 0]
        return rookery.PolicyStep(np.repeat(self.memory, 2, axis=1), value, value)

    def begin_episodes(self, env_ids):
        before = np.zeros((len(env_ids), 1), np.float32) if self.memory is None else self.memory
        self.memory = np.where(env_ids[:, None], np.float32(0), before)

    def to_env(self, action):
        return np.nan_to_num(action).clip(-1, 1)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_an_own_policy_makes_of_a_nan_is_left_out():
    first, second = _rollouts(Forgetful(), 2, OBS, spaces.Box(-1, 1, (2,)), env=Blink)
    second.terminated[4, 0] = True
    finite = FiniteRollouts()
    for rollout in (first, second):
        finite.check(rollout)
        for column in (rollout.action, rollout.log_prob, rollout.value, rollout.memory):
            assert np.isfinite(column).all()
    assert first.valid[:2].all() and not first.valid[2:].any()
    assert not second.valid[:5].any() and not second.valid[:, 1:].any()
    assert finite.metrics() == {"nonfinite_transitions": 30.0 + 36.0}


@pytest.mark.parametrize("core", CORES)
def test_nothing_is_remembered_beyond_an_episode(core):
    policy = _policy(core)
    first, second = _rollouts(policy)
    for rollout in (first, second):
        for t, b in np.argwhere(rollout.done[:-1]):
            fresh = _policy(core)
            value = fresh.act(rollout.obs[t + 1][b : b + 1]).value
            assert rollout.value[t + 1, b] == pytest.approx(value[0], abs=1e-5)
    goes_on = ~first.done[-1]
    assert goes_on.any() and first.done[-1].any()
    assert (np.abs(second.memory).sum(axis=1) > 0.0).tolist() == goes_on.tolist()


@pytest.mark.parametrize("core", CORES)
def test_a_truncated_episode_is_valued_with_what_was_remembered_at_its_end(core):
    policy = _policy(core)
    rollout = _rollouts(policy)[1]
    batch, _ = _batch(rollout, policy)
    checked = 0
    for k, (t, b) in enumerate(rollout.final_index.tolist()):
        if not rollout.truncated[t, b]:
            continue
        twin = _policy(core)
        twin.memory = rollout.memory[b : b + 1].copy()
        for s in range(t + 1):
            twin.act(rollout.obs[s][b : b + 1])
            if s < t:
                twin.begin_episodes(rollout.done[s][b : b + 1])
        value = twin.value(rollout.final_obs[k][None])[0]
        expected = rollout.reward[t, b] + 0.99 * value - rollout.value[t, b]
        piece = t // 4 * rollout.num_envs + b
        assert batch.advantage[t % 4, piece] == pytest.approx(expected, abs=1e-4)
        checked += 1
    assert checked > 0


def test_pieces_hold_every_valid_step_once():
    policy = _policy()
    rollout = _rollouts(policy)[0]
    rollout.valid[3, 1] = rollout.valid[4:8, 2] = False
    batch, _ = _batch(rollout, policy)
    assert batch.num_pieces == 3 * 3 - 1  # one piece has no valid step at all
    parts = [batch.take(index).steps() for index in np.array_split(np.arange(8), 3)]
    seen = np.sort(np.concatenate([part.log_prob for part in parts]))
    np.testing.assert_array_equal(seen, np.sort(rollout.log_prob[rollout.valid]))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
@pytest.mark.parametrize("space", [OBS, IMAGE], ids=["numbers", "images"])
def test_an_update_changes_memory_and_heads(algorithm, core, space):
    kind, config = {
        "ppo": (PPO, _config(core)),
        "a2c": (A2C, A2CConfig(num_steps=12, recurrent=core, memory_size=5)),
        "impala": (Impala, ImpalaConfig(num_steps=12, recurrent=core, memory_size=5)),
    }[algorithm]
    policy = kind.make_policy(config, space, spaces.Discrete(2), 0)
    learner = kind(policy, config, 3)
    before = {name: p.detach().clone() for name, p in policy.model.module.named_parameters()}
    for rollout in _rollouts(policy, observation_space=space):
        metrics = learner.update(rollout)
    assert np.isfinite(list(metrics.values())).all()
    for name, parameter in policy.model.module.named_parameters():
        assert (parameter != before[name]).any(), name


@pytest.mark.parametrize("core", CORES)
def test_impala_sees_what_acting_saw(core):
    policy = _policy(core)
    learner = Impala(policy, ImpalaConfig(num_steps=12, recurrent=core, memory_size=5), 3)
    for rollout in _rollouts(policy):
        now = learner.evaluate(rollout)
        np.testing.assert_allclose(now.value.detach(), rollout.value, atol=1e-5)
        np.testing.assert_allclose(now.last_value, rollout.last_value, atol=1e-5)
        drawn = policy.model.module.distribution(now.outputs)
        log_prob = drawn.log_prob(actions_of(rollout, learner._place)).detach()
        np.testing.assert_allclose(log_prob, rollout.log_prob.ravel(), atol=1e-5)


def test_rows_that_only_reset_an_env_are_not_remembered():
    venv = rookery.make_vec(Wander, 2, "serial", autoreset_mode="next_step")
    with pytest.raises(ConfigError, match="next_step"):
        rookery.SyncCollector(venv, _policy(), 4)
    venv.close()


@pytest.mark.parametrize(
    "wrong", [{"sequence_length": 5}, {"recurrent": "elman"}, {"memory_size": 0}], ids=str
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PPOConfig(**{"num_steps": 12, "recurrent": "gru", "sequence_length": 4, **wrong})


class Recall(gym.Env[Any, Any]):
    """Shows one of two signs at first, and asks for it three steps later."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._sign, self._t = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action):
        self._t += 1
        obs = np.array([0, self._t == 3], np.float32)
        reward = float(self._t == 4 and action == self._sign)
        return obs, reward, self._t == 4, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("core", CORES)
def test_a_sign_is_remembered(core):
    torch.set_num_threads(1)
    config = PPOConfig(
        num_steps=16, recurrent=core, memory_size=16, sequence_length=16, num_epochs=4,
        learning_rate=5e-3, minibatch_size=128, entropy_coef=0.01,
    )  # fmt: skip
    policy = PPO.make_policy(config, Recall.observation_space, Recall.action_space, 0)
    learner = PPO(policy, config, 16)
    venv = rookery.make_vec(Recall, 16, "serial", autoreset_mode="same_step")
    collector = rookery.SyncCollector(venv, policy, config.num_steps, seed=0)
    for k in range(60):
        rollout = collector.collect()
        learner.update(rollout, k / 60)
    venv.close()
    assert rollout.reward.sum() / rollout.done.sum() > 0.9
