"""The SAC learner: densities, targets and gradients against torch and against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery import ConfigError, Rollout, SACConfig, SpaceError
from rookery.learn.sac import SAC
from rookery.policy.squashed_gaussian import LOG_STD_RANGE
from rookery.policy.stack import MLPStack

T, B = 4, 3
OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-2, 4, (2,))
SMALL = {"num_steps": T, "batch_size": 16, "warmup_steps": 0, "hidden_sizes": (8, 8)}


def _learner(**settings):
    config = SACConfig(**{**SMALL, **settings})
    policy = SAC.make_policy(config, OBS, ACTIONS, seed=0)
    # The initial outputs are nearly zero, which would hide mistakes.
    noise = np.random.default_rng(1).normal(size=policy.model.parameters.shape) * 0.3
    policy.model.parameters += noise.astype(np.float32)
    return policy, SAC(policy, config, B)


def _rollout(seed: int = 0) -> Rollout:
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (T + 1, B, 3)).astype(np.float32)
    rollout = Rollout.allocate(T, obs[0], np.zeros((B, 2), np.float32))
    rollout.obs, rollout.last_obs = obs[:-1], obs[-1]
    rollout.action[:] = rng.uniform(-1, 1, (T, B, 2))
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.2
    return rollout


def _torch_stack(stack: MLPStack, flat: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Compute the stack's outputs ``[K, N, outputs]`` by torch."""
    views = stack.layout.views(flat)
    depth = len(views) // 2
    hidden = x.expand(stack.num_members, *x.shape)
    for k in range(depth):
        hidden = torch.baddbmm(views[f"tower{k}.bias"], hidden, views[f"tower{k}.weight"])
        if k < depth - 1:
            hidden = torch.relu(hidden)
    return hidden


@pytest.mark.parametrize("num_members", [1, 2])
def test_a_stack_and_its_gradients_equal_torch(num_members: int):
    stack = MLPStack(num_members, (3, 8, 8, 2), "relu", seed=0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3)).astype(np.float32)
    by = rng.normal(size=(num_members, 20, 2)).astype(np.float32)
    flat = torch.from_numpy(stack.parameters.copy()).requires_grad_()
    inputs = torch.from_numpy(x).requires_grad_()
    outputs = _torch_stack(stack, flat, inputs)
    expected = torch.autograd.grad(outputs, [flat, inputs], torch.from_numpy(by))
    np.testing.assert_allclose(stack.forward(x).outputs, outputs.detach(), atol=1e-5)
    np.testing.assert_allclose(stack.backward(stack.forward(x), by), expected[0], atol=1e-4)
    np.testing.assert_allclose(stack.input_gradient(stack.forward(x), by), expected[1], atol=1e-4)


def _torch_sample(policy, flat: torch.Tensor, vector: np.ndarray, seed: int):
    """Draw with the same noise, and compute the density as torch's distributions have it."""
    outputs = _torch_stack(policy.model.actor, flat, torch.from_numpy(vector))[0]
    mean, log_std = outputs.chunk(2, dim=1)
    std = log_std.clamp(*LOG_STD_RANGE).exp()
    noise = np.random.default_rng(seed).standard_normal(mean.shape, np.float32)
    pre = mean + std * torch.from_numpy(noise)
    base = torch.distributions.Normal(mean, std)
    tanh = torch.distributions.transforms.TanhTransform(cache_size=1)
    squashed = torch.distributions.TransformedDistribution(base, [tanh])
    action = tanh(pre)
    return action, squashed.log_prob(action).sum(1)


@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_draws_densities_and_their_gradients_equal_torch(scale: float):
    policy, _ = _learner()
    policy.model.parameters *= np.float32(scale**0.3)  # reaches the bounds of the deviation
    vector = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    flat = torch.from_numpy(policy.model.parameters.copy()).requires_grad_()
    action, log_prob = _torch_sample(policy, flat, vector, seed=5)
    drawn = policy.model.sample(vector, np.random.default_rng(5))
    np.testing.assert_allclose(drawn.action, action.detach(), atol=1e-5)
    np.testing.assert_allclose(drawn.log_prob, log_prob.detach(), rtol=1e-3, atol=1e-3)
    rng = np.random.default_rng(1)
    d_action = rng.normal(size=action.shape).astype(np.float32)
    d_log_prob = rng.normal(size=30).astype(np.float32)
    by = [torch.from_numpy(d_action), torch.from_numpy(d_log_prob)]
    (expected,) = torch.autograd.grad([action, log_prob], flat, by)
    gradient = policy.model.actor.backward(drawn.done, drawn.d_outputs(d_action, d_log_prob))
    np.testing.assert_allclose(gradient, expected, rtol=2e-2, atol=2e-2)


def test_targets_are_those_of_a_plain_loop():
    policy, learner = _learner(gamma=0.5, entropy_coef=0.3, updates_per_step=0.0)
    learner.update(_rollout())
    learner._targets.parameters *= np.float32(1.5)  # not the critics themselves
    batch = learner._replay.sample(40, np.random.default_rng(0))
    learner._rng = np.random.default_rng(9)
    drawn = policy.model.sample(policy.model.encode(batch.next_obs), np.random.default_rng(9))
    read = np.concatenate([batch.next_obs, drawn.action], axis=1)
    values = learner._targets.forward(read).outputs
    for k, got in enumerate(learner._soft_targets(batch)):
        lesser = min(values[0, k, 0], values[1, k, 0])
        expected = batch.reward[k] + batch.discount[k] * (lesser - 0.3 * drawn.log_prob[k])
        assert got == pytest.approx(expected, abs=1e-5)


def test_a_step_follows_the_gradients_that_torch_finds(monkeypatch):
    policy, learner = _learner(updates_per_step=0.0)
    learner.update(_rollout())
    batch = learner._replay.sample(16, np.random.default_rng(0))
    seen = {}
    for name in ("critic", "actor", "alpha"):
        optimizer = getattr(learner, f"_{name}_optimizer")
        monkeypatch.setattr(optimizer, "step", lambda g, r, name=name: seen.update({name: g + 0}))
    learner._log_alpha[:] = -0.7
    learner._rng = np.random.default_rng(3)
    target = torch.from_numpy(learner._soft_targets(batch))
    learner._rng = np.random.default_rng(3)
    learner._improve_critics(batch, batch.obs)
    critics = torch.from_numpy(learner._critics.parameters.copy()).requires_grad_()
    read = torch.from_numpy(np.concatenate([batch.obs, batch.action], axis=1))
    values = _torch_stack(learner._critics, critics, read)[:, :, 0]
    loss = 0.5 * (values - target).square().mean(1).sum()
    (expected,) = torch.autograd.grad(loss, critics)
    np.testing.assert_allclose(seen["critic"], expected, atol=1e-5)

    learner._rng = np.random.default_rng(4)
    learner._improve_actor(batch.obs)
    flat = torch.from_numpy(policy.model.parameters.copy()).requires_grad_()
    action, log_prob = _torch_sample(policy, flat, batch.obs, seed=4)
    read = torch.cat([torch.from_numpy(batch.obs), action], 1)
    lesser = _torch_stack(learner._critics, critics.detach(), read)[:, :, 0].min(0).values
    alpha = float(np.exp(-0.7))
    (expected,) = torch.autograd.grad((alpha * log_prob - lesser).mean(), flat)
    np.testing.assert_allclose(seen["actor"], expected, atol=1e-4)
    # d/dlog_alpha of mean(-exp(log_alpha) * (log_prob - num_actions))
    expected_alpha = -alpha * (float(log_prob.detach().mean()) - 2.0)
    assert seen["alpha"] == pytest.approx(expected_alpha, rel=1e-4)


def test_the_best_action_is_found():
    policy, learner = _learner(updates_per_step=2.0, gamma=0.5, learning_rate=3e-3)
    for seed in range(40):
        rollout = _rollout(seed)
        rollout.reward[:] = -np.abs(rollout.action - 0.5).sum(axis=2)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    action = policy.act(obs, deterministic=True).action
    assert np.abs(action - 0.5).mean() < 0.15


def test_actions_are_stretched_to_the_bounds_of_the_space():
    policy, _ = _learner()
    ends = policy.to_env(np.array([[-1, -1], [1, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(ends, [[-2, -2], [4, 4], [1, 1]])
    assert ends.dtype == np.float32


def test_the_entropy_coefficient_falls_while_there_is_entropy_to_spare():
    _, learner = _learner(updates_per_step=1.0, target_entropy=-50.0)
    before = learner.alpha
    learner.update(_rollout())
    assert learner.alpha < before
    _, learner = _learner(updates_per_step=1.0, entropy_coef=0.2)
    learner.update(_rollout())
    assert learner.alpha == 0.2


def test_a_learner_goes_on_from_its_state():
    settings = {"updates_per_step": 0.5, "normalize_obs": True}
    policy, learner = _learner(**settings)
    learner.update(_rollout(1))
    other_policy, other = _learner(**settings)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    rollout = _rollout(2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "message"),
    [
        (OBS, spaces.Discrete(2), "Box of floats"),
        (OBS, spaces.Box(-np.inf, 1, (1,)), "finite bounds"),
        (spaces.Box(0, 255, (40, 40, 3), np.uint8), ACTIONS, "images"),
    ],
    ids=["discrete", "unbounded", "image"],
)
def test_spaces_it_cannot_do_with_are_refused(observation_space, action_space, message):
    with pytest.raises(SpaceError, match=message):
        SAC.make_policy(SACConfig(), observation_space, action_space, seed=0)


@pytest.mark.parametrize("wrong", [{"entropy_coef": -1.0}, {"gamma": 2.0}], ids=str)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SACConfig(**wrong)
