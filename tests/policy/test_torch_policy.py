"""Custom torch modules act in every collector with their current weights."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rookery
import rookery.policy
from rookery import ConfigError, PolicyStep, UsageError

OBS = spaces.Box(-10, 10, (4,))
BOX = spaces.Box(-1, 1, (2,))
BOX_1 = spaces.Box(-1, 1, (1,))


class Net(nn.Module):
    """Outputs and a value, with a statistic that training moves."""

    def __init__(self, num_outputs: int = 2) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.actor, self.critic = nn.Linear(4, num_outputs), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.norm(x)
        return self.actor(x), self.critic(x).squeeze(1)


def _policy(module: nn.Module | None = None, action_space: Any = None) -> rookery.TorchPolicy:
    return rookery.TorchPolicy(module or Net(), OBS, action_space or spaces.Discrete(2))


@pytest.mark.parametrize(
    "action_space", [spaces.Discrete(2), BOX, spaces.Tuple([BOX, spaces.Discrete(3)])], ids=str
)
def test_a_module_acts_by_its_outputs(action_space):
    outputs = {spaces.Discrete: 2, spaces.Box: 2, spaces.Tuple: 5}[type(action_space)]
    policy = _policy(nn.Linear(4, outputs), action_space)
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    step = policy.act(obs)
    found = policy.module.distribution(policy.module(torch.from_numpy(obs)).outputs)
    rows = torch.from_numpy(policy.layout.unpack(step.action))
    np.testing.assert_allclose(found.log_prob(rows).detach(), step.log_prob, atol=1e-5)
    assert (step.value == 0).all()  # the module gives none


def test_a_module_with_wrong_outputs_raises():
    with pytest.raises(ConfigError, match=r"outputs of shape \[2, 2\]"):
        _policy(nn.Linear(4, 3))


def test_acting_changes_neither_statistics_nor_training_mode():
    net = Net().train()
    policy = _policy(net)
    before = net.norm.running_mean.clone()
    policy.act(np.ones((5, 4), np.float32))
    assert net.training and (net.norm.running_mean == before).all()


def _sgd(policy) -> None:
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    policy.module(torch.ones(3, 4)).outputs[:, 0].sum().backward()
    optimizer.step()


def _load(policy) -> None:
    policy.module.load_state_dict({k: v + 1 for k, v in policy.module.state_dict().items()})


def _through_data(policy) -> None:
    policy.module.network.actor.bias.data.add_(1.0)


def _replaced(policy) -> None:
    policy.module.network.actor.bias.data = torch.ones(2)


def _statistics(policy) -> None:
    policy.module.train()
    policy.module(torch.randn(8, 4))
    policy.module.eval()


CHANGES = [_sgd, _load, _through_data, _replaced, _statistics]


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_of_the_weights_is_a_new_version(change):
    policy = _policy()
    assert [policy.current_version() for _ in range(3)] == [0, 0, 0]
    change(policy)
    assert [policy.current_version() for _ in range(2)] == [1, 1]


def test_a_change_that_was_counted_is_not_counted_again():
    policy = _policy()
    _sgd(policy)
    policy.version += 1
    assert policy.current_version() == 1


def test_a_pickled_copy_has_the_weights_and_learns_separately():
    policy = _policy()
    _sgd(policy)
    policy.current_version()
    copy = pickle.loads(pickle.dumps(policy))
    obs = np.ones((3, 4), np.float32)
    assert copy.version == 1
    np.testing.assert_array_equal(copy.value(obs), policy.value(obs))
    copy.model.parameters += 1.0
    assert (copy.value(obs) != policy.value(obs)).all()


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["caller", "workers"])
def test_the_next_rollout_is_of_the_new_weights(where, change):
    policy = _policy()
    with _collector(where, policy) as collector:
        first = collector.collect()
        assert (first.policy_version == 0).all()
        change(policy)
        rollout = collector.collect()
        assert (rollout.policy_version == 1).all()
        obs = np.array(rollout.obs)
        value = policy.value(obs.reshape(-1, 4)).reshape(rollout.value.shape)
        np.testing.assert_allclose(rollout.value, value, atol=1e-5)


class _collector:
    def __init__(self, where: str, policy: Any, env: Any = "CartPole-v1") -> None:
        if where == "workers":
            self._made: Any = rookery.WorkerCollector(env, policy, 4, 2, 5, seed=0)
            self.collect, self._close = self._made.collect, self._made.close
        else:
            venv = rookery.make_vec(env, 4, "serial")
            self.collect = rookery.SyncCollector(venv, policy, 5, seed=0).collect
            self._close = venv.close

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def test_a_class_of_the_callers_script_is_pickled():
    class Local(nn.Linear):
        """Cannot be imported."""

    policy = _policy(Local(4, 2))
    copy = cloudpickle.loads(cloudpickle.dumps(policy))
    obs = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(copy.act(obs, True).action, policy.act(obs, True).action)


# ---------------------------------------------------------------- policies without a model


class Plain(rookery.Policy):
    """Acts by a table that nobody knows of."""

    def __init__(self) -> None:
        self.choice = 0

    def act(self, obs, deterministic=False):
        zeros = np.zeros(len(obs), np.float32)
        return PolicyStep(np.full(len(obs), self.choice), zeros, zeros)


@pytest.mark.slow
def test_a_policy_that_does_not_change_needs_no_model():
    with _collector("workers", Plain()) as collector:
        for _ in range(3):
            assert (collector.collect().action == 0).all()


@pytest.mark.slow
def test_a_changed_policy_without_a_model_is_refused_by_workers():
    policy = Plain()
    with _collector("workers", policy) as collector:
        collector.collect()
        policy.version += 1  # as a trainer counts: nothing was changed by that
        assert (collector.collect().policy_version == 1).all()
        policy.choice = 1
        with pytest.raises(UsageError, match="Plain was changed, but has no model"):
            collector.collect()


# ---------------------------------------------------------------- joint actions


class JointEnv(gym.Env[Any, Any]):
    """Rewards with a number that tells the action."""

    observation_space = OBS
    action_space = spaces.Dict(
        arm=BOX_1, legs=spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        leg, feet = action["legs"]
        told = leg + 10 * feet.sum() + 100 * action["arm"][0]
        return np.zeros(4, np.float32), float(told), False, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["caller", "workers"])
def test_joint_actions_reach_the_envs(where):
    policy = rookery.policy.make_policy(JointEnv.observation_space, JointEnv.action_space)
    with _collector(where, policy, JointEnv) as collector:
        rollout = collector.collect()
        assert rollout.action.shape == (5, 4, 4)
        parts = policy.layout.decode(rollout.action.reshape(-1, 4))
        arm, (leg, feet) = np.clip(parts["arm"][:, 0], -1, 1), parts["legs"]
        expected = leg + 10 * feet.sum(1) + 100 * arm
        np.testing.assert_allclose(rollout.reward.ravel(), expected, atol=1e-4)
