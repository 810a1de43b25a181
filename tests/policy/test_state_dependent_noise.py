"""State-dependent noise: draws, intervals and densities."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rookery import A2CConfig, ConfigError, PPOConfig, SACConfig, SpaceError
from rookery.learn.fast import FusedGradient
from rookery.learn.off_policy.sac import SAC
from rookery.learn.on_policy.actor_critic import actor_critic_policy
from rookery.policy import NumpyPolicy, make_policy
from rookery.policy.torch.distributions import SquashedGaussian
from rookery.policy.torch.networks import SquashedActor
from rookery.policy.torch.torch_policy import TorchPolicy

VECTOR, BOX = spaces.Box(-1, 1, (5,)), spaces.Box(-1, 1, (3,))
N = 40


def _obs(rows: int = N, seed: int = 0):
    batch = batch_space(VECTOR, rows)
    batch.seed(seed)
    return batch.sample()


def _policy(**settings):
    settings = {"state_dependent_noise": True, "noise_interval": 3, **settings}
    policy = make_policy(VECTOR, BOX, **settings)
    noise = np.random.default_rng(3).normal(size=policy.model.parameters.shape)
    policy.model.parameters += 0.1 * noise.astype(np.float32)
    return policy


def _squashed(**settings):
    def build(size, widths, layout, generator):
        return SquashedActor(size, 3, widths, generator=generator, shows_latent=True)

    return _policy(squashed=True, build=build, hidden_sizes=(8,), **settings)


def _outputs(policy, obs):
    """Means, latent states and deviations of the matrix, as torch has them."""
    with torch.no_grad():
        outputs = policy.model.module(torch.from_numpy(obs)).outputs
    mean, latent = outputs[:, :3], outputs[:, 3:]
    return mean, latent, policy.model.module.head.log_std.detach().view(-1, 3).exp()


@pytest.mark.parametrize("hidden_sizes", [(), (16,), (32, 8)])
@pytest.mark.parametrize("core", ["none", "gru", "lstm"])
def test_numpy_acts_as_torch_does(hidden_sizes, core):
    policy = _policy(hidden_sizes=hidden_sizes, core=core, core_size=8, normalize_obs=True)
    policy.model.observe(_obs(seed=1))
    assert not isinstance(policy, TorchPolicy)
    twin = TorchPolicy.of(policy.model, VECTOR, np.random.default_rng(5))
    policy.rng = np.random.default_rng(5)
    for step in range(7):
        deterministic = step == 4
        ours, theirs = (p.act(_obs(seed=step), deterministic) for p in (policy, twin))
        np.testing.assert_allclose(ours.action, theirs.action, atol=1e-5)
        np.testing.assert_allclose(ours.log_prob, theirs.log_prob, atol=1e-4)
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-5)


def test_numpy_acts_like_torch_with_squashed_actions():
    policy = _squashed()
    assert isinstance(policy, NumpyPolicy)
    twin = TorchPolicy.of(policy.model, VECTOR, np.random.default_rng(5))
    policy.rng = np.random.default_rng(5)
    for step in range(7):
        obs, deterministic = _obs(seed=step), step == 4
        ours, theirs = policy.sample(obs, deterministic), twin.act(obs, deterministic)
        np.testing.assert_allclose(ours, theirs.action, atol=1e-5)


def test_log_probabilities_equal_normals_with_state_dependent_variance():
    policy, obs = _policy(initial_log_std=-0.5), _obs()
    step = policy.act(obs)
    mean, latent, std = _outputs(policy, obs)
    variance = latent.square() @ std.square() + 1e-6
    normal = torch.distributions.Normal(mean, variance.sqrt())
    expected = normal.log_prob(torch.from_numpy(step.action)).sum(1)
    np.testing.assert_allclose(step.log_prob, expected, atol=1e-4)
    module = policy.model.module
    drawn = module.distribution(module(torch.from_numpy(obs)).outputs)
    torch.testing.assert_close(drawn.log_prob(torch.from_numpy(step.action)), expected)
    torch.testing.assert_close(drawn.entropy(), normal.entropy().sum(1))


def test_the_spread_of_actions_matches_their_log_probabilities():
    policy = _policy(noise_interval=1, initial_log_std=-1.0)
    obs = np.repeat(_obs(1), 20_000, axis=0)
    found = policy.sample(obs)
    mean, latent, std = _outputs(policy, obs[:1])
    np.testing.assert_allclose(found.mean(0), mean[0], atol=0.03)
    expected = (latent.square() @ std.square()).sqrt()[0]
    np.testing.assert_allclose(found.std(0), expected, rtol=0.03)


def test_noise_is_a_function_of_the_state_within_the_interval():
    policy = _policy()
    means = []
    for seed in range(7):  # kept for three steps: 0 to 2, 3 to 5, 6
        obs = _obs(seed=seed)
        noise = policy.sample(obs) - policy.sample(obs, deterministic=True)
        _, latent, std = _outputs(policy, obs)
        matrix = policy.noise_state.values * std.numpy()
        np.testing.assert_allclose(noise, np.einsum("nh,nhk->nk", latent, matrix), atol=1e-5)
        means.append(matrix.copy())
    for one, other in ((0, 2), (3, 5)):
        np.testing.assert_array_equal(means[one], means[other])
    for one, other in ((2, 3), (5, 6)):
        assert (means[one] != means[other]).all()
    assert len(np.unique(means[0][:, 0, 0])) == N  # every env has its own


def test_another_number_of_envs_gets_new_noise():
    policy = _policy(noise_interval=100)
    for rows in (4, 1, 7):
        policy.sample(_obs(rows))
        assert policy.noise_state.values.shape == (rows, 64, 3) and policy.noise_state.age == 1


def test_deterministic_actions_change_neither_generator_nor_noise():
    policy, obs = _policy(), _obs()
    policy.sample(obs)
    held, state = policy.noise_state, policy.rng.bit_generator.state
    np.testing.assert_allclose(policy.sample(obs, True), _outputs(policy, obs)[0], atol=1e-5)
    assert policy.noise_state is held and policy.rng.bit_generator.state == state


def test_noise_uses_the_current_deviations():
    policy, obs = _policy(), _obs()
    mean = policy.sample(obs, deterministic=True)
    before = policy.sample(obs) - mean
    with torch.no_grad():
        policy.model.module.head.log_std += float(np.log(2.0))
    np.testing.assert_allclose(policy.sample(obs) - mean, 2.0 * before, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("acts_in_torch", [False, True])
def test_a_copy_continues_equally_unless_its_stream_differs(acts_in_torch):
    policy, obs = _policy(), _obs()
    if acts_in_torch:
        policy = TorchPolicy.of(policy.model, VECTOR, policy.rng)
    policy.act(obs)
    twin, other = (pickle.loads(pickle.dumps(policy)) for _ in range(2))
    other.use_stream(1)
    for seed in range(4):
        action = policy.act(_obs(seed=seed)).action
        np.testing.assert_array_equal(twin.act(_obs(seed=seed)).action, action)
        assert (other.act(_obs(seed=seed)).action != action).any()


def test_no_gradient_flows_from_the_variance_into_the_features():
    policy = _policy()
    module = policy.model.module
    drawn = module.distribution(module(torch.from_numpy(_obs())).outputs)
    network = list(module.network.parameters())
    found = torch.autograd.grad(
        drawn.entropy().sum(), network, allow_unused=True, retain_graph=True
    )
    assert all(gradient is None or not gradient.any() for gradient in found)
    (found,) = torch.autograd.grad(drawn.entropy().sum(), [module.head.log_std])
    assert (found != 0).any()


def test_squashed_draws_of_a_learner_have_the_density_of_torch():
    config = SACConfig(state_dependent_noise=True, hidden_sizes=(8,), initial_log_std=-0.5)
    policy = SAC.make_policy(config, VECTOR, BOX, seed=0)
    assert policy.model.module.head.log_std.tolist() == [-0.5] * 24
    learner = SAC(policy, config, 2)
    obs = torch.from_numpy(_obs())
    learner._noise.manual_seed(4)
    action, log_prob = learner._draw(obs)
    mean, latent, std = _outputs(policy, obs.numpy())
    deviation = (latent.square() @ std.square() + 1e-6).sqrt()
    noise = torch.randn(mean.shape, generator=torch.Generator().manual_seed(4))
    tanh = torch.distributions.transforms.TanhTransform(cache_size=1)
    base = torch.distributions.Normal(mean, deviation)
    squashed = torch.distributions.TransformedDistribution(base, [tanh])
    expected = tanh(mean + deviation * noise)
    torch.testing.assert_close(action.detach(), expected)
    torch.testing.assert_close(log_prob.detach(), squashed.log_prob(expected).sum(1))
    drawn = learner.actor.distribution(learner.actor.run(obs).outputs)
    assert isinstance(drawn, SquashedGaussian)


def test_the_default_interval_is_a_rollout():
    for config, expected in [
        (PPOConfig(state_dependent_noise=True, num_steps=32), 32),
        (A2CConfig(state_dependent_noise=True, noise_interval=4), 4),
    ]:
        policy = actor_critic_policy(config, VECTOR, BOX, 0)
        assert policy.layout.noise_interval == expected
    for value in (0, -2, 1.5):
        with pytest.raises(ConfigError, match="noise_interval"):
            PPOConfig(noise_interval=value)


def test_unsupported_combinations_raise():
    config = PPOConfig(state_dependent_noise=True)
    for space in (spaces.Discrete(2), spaces.Dict(a=BOX, b=spaces.Discrete(2))):
        with pytest.raises(SpaceError, match="state_dependent_noise needs a Box of floats"):
            actor_critic_policy(config, VECTOR, space, 0)
    with pytest.raises(ConfigError, match="give an encoder instead"):
        actor_critic_policy(config, VECTOR, BOX, 0, network=lambda *_: torch.nn.Linear(5, 3))


def test_the_output_of_a_custom_encoder_can_be_the_latent_state():
    policy = _policy(encoder=lambda space: torch.nn.Linear(5, 7))
    assert policy.layout.num_latent == 7 and isinstance(policy, TorchPolicy)
    assert policy.act(_obs()).action.shape == (N, 3)


def test_fused_gradients_are_not_used_for_it():
    assert FusedGradient.of(make_policy(VECTOR, BOX)) is not None
    assert FusedGradient.of(_policy()) is None
