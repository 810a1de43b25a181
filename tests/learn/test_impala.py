"""The IMPALA learner, by itself and with actors that run ahead of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

import rookery
from rookery.learn.config import ImpalaConfig
from rookery.learn.on_policy.impala import Impala, vtrace
from rookery.rollout import EpisodeTracker, Rollout

T, B = 5, 3
ACTIONS = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,))}


def _learner(action: str = "discrete", **settings):
    config = ImpalaConfig(num_steps=T, **settings)
    policy = Impala.make_policy(config, spaces.Box(-1, 1, (4,)), ACTIONS[action], seed=0)
    return policy, Impala(policy, config, B)


def _rollout(policy) -> Rollout:
    """Make up experience of an older policy, with both ends of episodes."""
    rng = np.random.default_rng(1)
    obs = rng.normal(size=(T, B, 4)).astype(np.float32)
    step = policy.act(obs.reshape(-1, 4))
    rollout = Rollout.allocate(T, obs[0].copy(), step.action[:B])
    rollout.obs[:] = obs
    rollout.action[:] = step.action.reshape(rollout.action.shape)
    rollout.log_prob[:] = step.log_prob.reshape(T, B) + rng.normal(0, 0.3, (T, B))
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[1, 1] = rollout.truncated[2, 2] = True
    rollout.final_index = np.array([[1, 1], [2, 2]])
    rollout.final_obs = rng.normal(size=(2, 4)).astype(np.float32)
    return rollout


def _parameters_after_an_update(change, **settings):
    policy, learner = _learner(**settings)
    rollout = _rollout(policy)
    change(rollout)
    learner.update(rollout)
    return policy.model.parameters


def _nothing(rollout) -> None:
    pass


def test_values_are_those_of_the_present_weights():
    def forget(rollout) -> None:
        rollout.value[:] = rollout.last_value[:] = rollout.final_value[:] = 99

    actual = _parameters_after_an_update(forget)
    np.testing.assert_array_equal(actual, _parameters_after_an_update(_nothing))


@pytest.mark.parametrize("part", ["last_obs", "final_obs"])
def test_the_last_and_the_truncated_observations_are_bootstrapped_from(part):
    def move(rollout) -> None:
        getattr(rollout, part)[-1] += 1

    actual = _parameters_after_an_update(move)
    assert (actual != _parameters_after_an_update(_nothing)).any()


def test_invalid_rows_teach_nothing():
    def spoil(rollout, reward: float) -> None:
        rollout.valid[3] = False
        rollout.reward[3] = reward
        rollout.log_prob[3] = -reward

    low = _parameters_after_an_update(lambda rollout: spoil(rollout, 1))
    high = _parameters_after_an_update(lambda rollout: spoil(rollout, 50))
    np.testing.assert_array_equal(low, high)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_step_follows_the_gradient_that_autograd_finds(action, monkeypatch):
    settings = {"normalize_advantage": False, "entropy_coef": 0.1, "max_grad_norm": 1e9}
    policy, learner = _learner(action, **settings)
    rollout = _rollout(policy)
    expected = _autograd(policy, learner.config, rollout)
    seen = []
    monkeypatch.setattr(learner._optimizer, "step", lambda g, rate: seen.append(g.clone()))
    learner.update(rollout)
    np.testing.assert_allclose(seen[0], expected, atol=1e-5)


def _autograd(policy, config, rollout):
    """The gradient of the loss as the paper states it, by torch."""
    module, flat = policy.model.module, policy.model.flat

    def evaluate(obs):
        found = module(torch.from_numpy(np.ascontiguousarray(obs, np.float32)))
        return found.outputs, found.value

    outputs, value = evaluate(rollout.obs.reshape(-1, 4))
    if module.head.log_std is not None:
        std = module.head.log_std.exp().expand_as(outputs)
        normal = torch.distributions.Normal(outputs, std)
        actions = torch.from_numpy(rollout.action.reshape(T * B, -1))
        log_prob, entropy = normal.log_prob(actions).sum(1), normal.entropy().sum(1)
    else:
        categorical = torch.distributions.Categorical(logits=outputs)
        log_prob = categorical.log_prob(torch.from_numpy(rollout.action.ravel()))
        entropy = categorical.entropy()
    final_value = np.zeros((T, B), np.float32)
    final_value[2, 2] = evaluate(rollout.final_obs[1:])[1].item()
    corrected = vtrace(
        log_prob.detach().numpy().reshape(T, B) - rollout.log_prob,
        rollout.reward,
        value.detach().numpy().reshape(T, B),
        evaluate(rollout.last_obs)[1].detach().numpy(),
        rollout.terminated,
        rollout.truncated,
        final_value,
        gamma=config.gamma,
    )
    advantage, target = (
        torch.from_numpy(x.ravel()) for x in (corrected.advantage, corrected.target)
    )
    loss = -(log_prob * advantage).mean() + config.value_coef * ((value - target) ** 2).mean()
    loss = loss - config.entropy_coef * entropy.mean()
    return flat.gradient(loss).numpy().copy()


def test_its_state_goes_on_where_it_was_left():
    policy, learner = _learner()
    rollout = _rollout(policy)
    learner.update(rollout)
    other_policy, other = _learner()
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    learner.update(rollout)
    other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


@pytest.mark.whole  # that a whole run learns, tests of training show
def test_cartpole_is_learned_from_actors_that_run_ahead():
    config = ImpalaConfig()
    total, steps, num_envs, returns = 40_000, 0, 16, []
    tracker = EpisodeTracker(num_envs)

    def make_policy(observation_space, action_space):
        return Impala.make_policy(config, observation_space, action_space, seed=1)

    with rookery.WorkerCollector(
        "CartPole-v1", make_policy, num_envs, 2, config.num_steps, "async", seed=1
    ) as collector:
        learner = Impala(collector.policy, config, num_envs, seed=1)
        while steps < total:
            rollout = collector.collect()
            learner.update(rollout, steps / total)
            collector.policy.version += 1
            steps += rollout.num_transitions
            returns += tracker.update(rollout).returns.tolist()
    assert np.mean(returns[:30]) < 40  # as random actions do
    assert np.mean(returns[-30:]) > 90
