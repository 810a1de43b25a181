"""The SAC learner: its three losses against torch.distributions and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, disturb, made_up_rollout, moved, numbers

from rookery import ConfigError, SACConfig, SpaceError
from rookery.learn.off_policy.sac import SAC

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Box(-2, 4, (2,))
SMALL = {"num_steps": T, "batch_size": 16, "warmup_steps": 0, "hidden_sizes": (8, 8)}


def _learner(observation_space=OBS, **settings):
    config = SACConfig(**{**SMALL, **settings})
    policy = SAC.make_policy(config, observation_space, ACTIONS, seed=0)
    learner = SAC(policy, config, B)
    disturb(policy.model.flat, 1)
    disturb(learner._critic_flat, 2)
    disturb(learner._target_critics.flat, 3)
    return policy, learner


def _rollout(seed: int = 0, observation_space=OBS):
    return made_up_rollout(observation_space, ACTIONS, seed)


def _drawn(learner, obs, generator):
    """Draw with the same noise, with the density that torch's distributions have."""
    mean, raw = learner.actor(obs).outputs.chunk(2, dim=1)
    log_std = -20 + torch.nn.functional.softplus(22 - torch.nn.functional.softplus(2 - raw))
    noise = torch.randn(mean.shape, generator=generator)
    base = torch.distributions.Normal(mean, log_std.exp())
    tanh = torch.distributions.transforms.TanhTransform(cache_size=1)
    squashed = torch.distributions.TransformedDistribution(base, [tanh])
    action = tanh(mean + log_std.exp() * noise)
    return action, squashed.log_prob(action).sum(1)


def _flat_gradient(loss, module):
    found = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
    return torch.cat([g.reshape(-1) for g in found])


def test_targets_are_those_of_a_plain_loop():
    _, learner = _learner(gamma=0.5, entropy_coef=0.3, updates_per_step=0.0)
    learner.update(_rollout())
    batch = learner._sample()
    action, log_prob = _drawn(learner, batch.next_obs, numbers(learner))
    values = learner._target_critics.module(batch.next_obs, action).detach()
    for k, got in enumerate(learner._targets(batch, learner._alpha()).tolist()):
        lesser = min(float(values[0, k]), float(values[1, k]))
        soft = lesser - 0.3 * float(log_prob.detach()[k])
        expected = float(batch.reward[k]) + float(batch.discount[k]) * soft
        assert got == pytest.approx(expected, abs=1e-4)


def test_a_return_of_several_steps_has_the_entropies_between_in_it():
    """Three steps without an end: ``r_0 + g (r_1 + a H_1) + g^2 (r_2 + a H_2) + g^3 V``."""
    _, learner = _learner(gamma=0.5, entropy_coef=0.3, n_step=3, updates_per_step=0.0)
    rollout = _rollout()
    rollout.terminated[:] = False
    learner.update(rollout)
    found = learner._replay.gather(np.array([0, 1, 2]))  # the first row of every env
    batch, generator = learner._on_device(found), numbers(learner)
    action, log_prob = _drawn(learner, batch.next_obs, generator)
    value = learner._target_critics.module(batch.next_obs, action).amin(0) - 0.3 * log_prob
    between = torch.from_numpy(np.concatenate([rollout.obs[1], rollout.obs[2]]))
    _, log_probs = _drawn(learner, between, generator)
    first, second = (-log_probs).split(B)
    r = torch.from_numpy(rollout.reward)
    expected = r[0] + 0.5 * (r[1] + 0.3 * first) + 0.25 * (r[2] + 0.3 * second) + 0.125 * value
    torch.testing.assert_close(learner._targets(batch, learner._alpha()), expected.detach())


def test_a_step_follows_the_gradients_of_the_three_losses(monkeypatch):
    _, learner = _learner(updates_per_step=0.0)
    learner.update(_rollout())
    found = learner._replay.sample(16, np.random.default_rng(0))
    monkeypatch.setattr(learner._replay, "sample", lambda *args: found)
    with torch.no_grad():
        learner._coefficient.log_alpha.fill_(-0.7)
    alpha, generator = float(np.exp(-0.7)), numbers(learner)
    obs = torch.from_numpy(found.obs)
    action, log_prob = _drawn(learner, torch.from_numpy(found.next_obs), generator)
    soft = learner._target_critics.module(torch.from_numpy(found.next_obs), action).amin(0)
    target = torch.from_numpy(found.reward) + torch.from_numpy(found.discount) * (
        soft - alpha * log_prob
    )
    values = learner._critics(obs, torch.from_numpy(found.action))
    critic_loss = 0.5 * (values - target.detach()).square().mean(1).sum()
    action, log_prob = _drawn(learner, obs, generator)
    actor_loss = (alpha * log_prob - learner._critics(obs, action).amin(0)).mean()
    alpha_gradient = -alpha * (
        float(log_prob.detach().mean()) - 2.0
    )  # two numbers: target entropy -2
    expected = {
        "critic": _flat_gradient(critic_loss, learner._critics),
        "actor": _flat_gradient(actor_loss, learner.actor),
        "alpha": torch.tensor([alpha_gradient]),
    }
    seen = {name: moved(getattr(learner, f"_{name}_optimizer")) for name in expected}
    metrics = learner._step(0.0)
    for name, gradient in expected.items():
        torch.testing.assert_close(seen[name][0], gradient, rtol=1e-3, atol=1e-4)
    assert metrics["value_loss"] == pytest.approx(float(critic_loss.detach()), rel=1e-4)
    assert metrics["policy_loss"] == pytest.approx(float(actor_loss.detach()), rel=1e-4)


@pytest.mark.parametrize("bias", [-60.0, 30.0])
def test_deviations_beyond_their_bounds_are_still_led_back(bias: float):
    _policy, learner = _learner(updates_per_step=0.0)
    learner.update(_rollout())
    last = learner.actor.network.layers[-1].bias
    with torch.no_grad():
        last[..., 2:] = bias
    loss, _ = learner.actor_loss(learner._sample())
    (gradient,) = torch.autograd.grad(loss, last)
    assert (gradient[..., 2:] != 0.0).all()


def test_actions_are_uniform_until_something_was_learned():
    policy, learner = _learner(warmup_steps=2 * T * B, updates_per_step=1.0)
    obs = np.zeros((4000, 3), np.float32)
    assert policy.is_uniform
    drawn = policy.act(obs).action
    assert abs(drawn.mean()) < 0.05 and drawn.std() == pytest.approx(3**-0.5, abs=0.02)
    learner.update(_rollout(0))
    assert policy.is_uniform
    learner.update(_rollout(1))
    assert not policy.is_uniform
    _, other = _learner(warmup_steps=2 * T * B, updates_per_step=1.0)
    learner.update(_rollout(2))
    other.load_state_dict(learner.state_dict())
    other.update(_rollout(0))  # it warms up again, with a policy that has learned
    assert not other.policy.is_uniform and other._gradient_steps == T * B


def test_the_higher_reward_is_found():
    policy, learner = _learner(learning_rate=1e-2, updates_per_step=1.0, gamma=0.2)
    for seed in range(40):
        rollout = _rollout(seed)
        rollout.reward[:] = -np.square(rollout.action - 0.5).sum(axis=2)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    action = policy.act(obs, deterministic=True).action
    np.testing.assert_allclose(action.mean(axis=0), 0.5, atol=0.15)
    np.testing.assert_allclose(policy.to_env(np.full((1, 2), 0.5)), 2.5)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (40, 40, 3), np.uint8),
        spaces.Dict(camera=spaces.Box(0, 255, (20, 20, 3), np.uint8), joints=OBS),
    ],
    ids=["image", "dict"],
)
def test_images_and_dicts_are_learned_from(space):
    policy, learner = _learner(space, updates_per_step=0.1, n_step=2)
    before = policy.model.parameters.copy()
    assert learner.update(_rollout(0, space))["gradient_steps"] == 1.0
    assert (policy.model.parameters != before).any()


def test_the_entropy_coefficient_follows_its_target_or_stays():
    _, learner = _learner(updates_per_step=1.0, target_entropy=50.0)
    learner.update(_rollout())
    assert learner.alpha > 1.0
    _, learner = _learner(updates_per_step=1.0, target_entropy=-50.0)
    learner.update(_rollout())
    assert learner.alpha < 1.0
    _, learner = _learner(updates_per_step=1.0, entropy_coef=0.2)
    learner.update(_rollout())
    assert learner.alpha == pytest.approx(0.2)


def test_a_step_that_is_not_finite_is_left_out_and_counted():
    policy, learner = _learner(updates_per_step=0.25)
    learner.update(_rollout())
    before = policy.model.parameters.copy()
    learner._critic_flat.tensor.fill_(torch.nan)
    metrics = learner.update(_rollout(1))
    assert metrics["skipped_gradient_steps"] > 0
    np.testing.assert_array_equal(policy.model.parameters, before)


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


def test_critics_share_no_numbers_with_actors_of_other_seeds():
    config = SACConfig(**SMALL)
    drawn = []
    for seed in (3, 4):
        policy = SAC.make_policy(config, OBS, ACTIONS, seed)
        learner = SAC(policy, config, B, seed)
        drawn += [policy.model.parameters[:24], learner._critic_flat.array[:24]]
    for k, one in enumerate(drawn):
        assert not any(np.allclose(one, other) for other in drawn[k + 1 :])


@pytest.mark.parametrize(
    ("action_space", "message"),
    [(spaces.Discrete(2), "Box of floats"), (spaces.Box(-np.inf, 1, (1,)), "finite bounds")],
    ids=["discrete", "unbounded"],
)
def test_spaces_it_cannot_do_with_are_refused(action_space, message):
    with pytest.raises(SpaceError, match=message):
        SAC.make_policy(SACConfig(), OBS, action_space, seed=0)


@pytest.mark.parametrize("wrong", [{"entropy_coef": -1.0}, {"gamma": 2.0}], ids=str)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SACConfig(**wrong)
