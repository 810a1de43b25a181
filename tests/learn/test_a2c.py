"""The A2C learner and its optimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import A2CConfig, ConfigError, Rollout
from rookery.learn.on_policy.a2c import A2C

T, B = 4, 3
OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(3)


def _learner(**settings):
    config = A2CConfig(num_steps=T, **settings)
    policy = A2C.make_policy(config, OBS, ACTIONS, seed=0)
    return policy, A2C(policy, config, B)


def _rollout(policy, seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(T, B, 3)).astype(np.float32)
    step = policy.act(obs.reshape(-1, 3))
    rollout = Rollout.allocate(T, obs[0], step.action[:B])
    rollout.obs[:] = obs
    for name in ("action", "log_prob", "value"):
        getattr(rollout, name)[:] = getattr(step, name).reshape(T, B)
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[1, 1] = rollout.truncated[2, 2] = True
    rollout.final_value[2, 2], rollout.last_value[:] = 0.5, [1.0, -1.0, 2.0]
    return rollout


def _n_step_returns(rollout: Rollout, gamma: float) -> np.ndarray:
    """Walk every env's column backwards, one number at a time."""
    returns = np.zeros((T, B))
    for b in range(B):
        following = float(rollout.last_value[b])
        for t in reversed(range(T)):
            if rollout.terminated[t, b]:
                following = 0.0
            elif rollout.truncated[t, b]:
                following = float(rollout.final_value[t, b])
            returns[t, b] = following = rollout.reward[t, b] + gamma * following
    return returns


def test_an_update_is_one_step_along_the_gradient_that_torch_finds():
    policy, learner = _learner(entropy_coef=0.01, gamma=0.9, max_grad_norm=1e9)
    rollout = _rollout(policy)
    returns = torch.from_numpy(_n_step_returns(rollout, 0.9).ravel())
    model = policy.model
    logits, value, _ = model.module(torch.from_numpy(rollout.obs.reshape(-1, 3)))
    distribution = torch.distributions.Categorical(logits=logits)
    advantage = returns - torch.from_numpy(rollout.value.ravel())
    log_prob = distribution.log_prob(torch.from_numpy(rollout.action.ravel()))
    loss = -(log_prob * advantage).mean() + 0.5 * (value - returns).square().mean()
    loss = loss - 0.01 * distribution.entropy().mean()
    g = model.flat.gradient(loss).numpy().astype(np.float64)
    rate = learner.config.learning_rate
    expected = policy.model.parameters.copy() - rate * g / (np.sqrt(0.01 * g**2) + 1e-5)
    metrics = learner.update(rollout)
    # Where a gradient is near nothing, RMSProp's first step is as wide as elsewhere, and its digits
    # are those that rounding left of it.
    np.testing.assert_allclose(policy.model.parameters, expected, atol=1e-5)
    assert metrics["gradient_norm"] == pytest.approx(np.sqrt(g @ g), rel=1e-4)


@pytest.mark.parametrize("normalize_advantage", [True, False])
def test_gradients_by_hand_are_those_of_torch(normalize_advantage):
    outcomes = []
    for fused in (True, False):
        settings = {"normalize_advantage": normalize_advantage, "entropy_coef": 0.01}
        policy, _ = _learner(**settings)
        learner = A2C(policy, A2CConfig(num_steps=T, **settings), B, fused=fused)
        metrics = [learner.update(_rollout(policy, seed)) for seed in range(3)]
        outcomes.append((policy.model.parameters, metrics[-1]))
    np.testing.assert_allclose(outcomes[0][0], outcomes[1][0], atol=1e-5)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-4, abs=1e-5)


def test_good_actions_become_more_probable():
    policy, learner = _learner(learning_rate=1e-2, rms_decay=0.9)
    for seed in range(200):
        rollout = _rollout(policy, seed)
        rollout.reward[:] = np.where(rollout.action == 2, 1.0, -1.0)
        rollout.terminated[:] = True
        learner.update(rollout)
    assert np.mean(policy.act(np.zeros((100, 3), np.float32)).action == 2) > 0.9


def test_invalid_rows_teach_nothing():
    outcomes = []
    for garbage in (0.0, 1e6):
        policy, learner = _learner()
        rollout = _rollout(policy)
        rollout.valid[2, 2] = rollout.valid[3, 0] = False
        rollout.reward[~rollout.valid] = garbage
        learner.update(rollout)
        outcomes.append(policy.model.parameters)
    np.testing.assert_array_equal(*outcomes)


def test_a_learner_goes_on_from_its_state():
    policy, learner = _learner(normalize_reward=True)
    learner.update(_rollout(policy, seed=1))
    other_policy, other = _learner(normalize_reward=True)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    rollout = _rollout(policy, seed=2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


@pytest.mark.parametrize("wrong", [{"gamma": 1.5}, {"num_steps": 0}, {"rms_decay": 2.0}], ids=str)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        A2CConfig(**wrong)
