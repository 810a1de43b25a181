"""The QR-DQN learner: the quantile Huber loss and targets against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, disturb, made_up_rollout

from rookery import ConfigError, QRDQNConfig, SpaceError
from rookery.learn.off_policy.qrdqn import QRDQN, quantile_huber

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(3, start=1)
SMALL = {
    "num_steps": T,
    "batch_size": 16,
    "warmup_steps": 0,
    "hidden_sizes": (8,),
    "num_quantiles": 5,
}


def _learner(observation_space=OBS, **settings):
    config = QRDQNConfig(**{**SMALL, **settings})
    policy = QRDQN.make_policy(config, observation_space, ACTIONS, seed=0)
    return policy, QRDQN(policy, config, B)


def _rollout(seed: int = 0, observation_space=OBS):
    return made_up_rollout(observation_space, ACTIONS, seed)


@pytest.mark.parametrize("limit", [1.0, 0.3, 0.0])
def test_the_loss_is_that_of_a_plain_loop(limit: float):
    generator = torch.Generator().manual_seed(0)
    quantiles, samples = torch.randn(4, 5, generator=generator), torch.randn(4, 3)
    for row, got in enumerate(quantile_huber(quantiles, samples, limit).tolist()):
        total = 0.0
        for i in range(5):
            tau = (2 * i + 1) / 10
            for j in range(3):
                u = float(samples[row, j] - quantiles[row, i])
                size = abs(u)
                if limit:
                    is_small = abs(u) <= limit
                    size = 0.5 * u**2 if is_small else limit * (abs(u) - 0.5 * limit)
                    size /= limit
                total += abs(tau - float(u < 0)) * size / 3
        assert got == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("limit", [1.0, 0.3, 0.0])
def test_the_gradient_of_the_loss_is_that_of_its_formula(limit: float):
    generator = torch.Generator().manual_seed(1)
    quantiles = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    samples = torch.randn(4, 3, generator=generator, dtype=torch.float64)

    def summed(values: torch.Tensor) -> torch.Tensor:
        return quantile_huber(values, samples, limit).sum()

    (gradient,) = torch.autograd.grad(summed(quantiles.requires_grad_()), quantiles)
    for place in np.ndindex(4, 5):
        nudge = torch.zeros_like(quantiles)
        nudge[place] = 1e-6
        with torch.no_grad():
            slope = (summed(quantiles + nudge) - summed(quantiles - nudge)) / 2e-6
        assert float(gradient[place]) == pytest.approx(float(slope), abs=1e-4)


def test_the_quantiles_of_a_distribution_are_found():
    quantiles = torch.zeros(1, 10, requires_grad=True)
    samples = torch.linspace(0.0, 1.0, 1001)[None]
    for _ in range(300):
        (gradient,) = torch.autograd.grad(quantile_huber(quantiles, samples, 0.0).sum(), quantiles)
        quantiles = (quantiles - 0.1 * gradient).detach().requires_grad_()
    expected = (torch.arange(10) + 0.5) / 10
    torch.testing.assert_close(quantiles[0].detach(), expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("double", [False, True])
def test_targets_are_those_of_a_plain_loop(double: bool):
    policy, learner = _learner(double=double, gamma=0.5)
    learner.update(_rollout())
    disturb(learner._target.flat, 1)
    disturb(policy.model.flat, 2)
    batch = learner._sample()
    target = learner._target.module
    for k, got in enumerate(learner._targets(batch)):
        row = batch.next_obs[k : k + 1]
        with torch.no_grad():
            theirs = target.network.quantiles(target.encoder(row))[0]
            mine = learner.actor.network.quantiles(learner.actor.encoder(row))[0]
        best = int((mine if double else theirs).mean(1).argmax())
        torch.testing.assert_close(got, batch.reward[k] + batch.discount[k] * theirs[best])


def test_numpy_acts_as_the_module_does():
    policy, learner = _learner()
    disturb(policy.model.flat)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    with torch.no_grad():
        values = learner.actor(torch.from_numpy(obs)).outputs.numpy()
    assert type(policy._inner).__name__ == "NumpyPolicy"
    np.testing.assert_array_equal(policy.act(obs, True).action - 1, values.argmax(axis=1))


def test_illegal_actions_are_neither_taken_nor_valued():
    space = spaces.Dict(numbers=OBS, action_mask=spaces.MultiBinary(3))
    policy, learner = _learner(space, n_step=2)
    disturb(learner._target.flat)
    for seed in range(3):
        rollout = _rollout(seed, space)
        for obs in (rollout.obs, rollout.last_obs):
            obs["action_mask"][:] = [0, 1, 0]
        learner.update(rollout)
    batch = learner._sample()
    with torch.no_grad():
        target = learner._target.module
        only = target.network.quantiles(target.encoder(batch.next_obs))[:, 1]
    expected = batch.reward[:, None] + batch.discount[:, None] * only
    torch.testing.assert_close(learner._targets(batch), expected)
    mask = np.tile(np.array([0, 1, 0], np.int8), (500, 1))
    obs = {"numbers": np.zeros((500, 3), np.float32), "action_mask": mask}
    policy.epsilon = 0.5
    assert set(policy.act(obs).action.tolist()) == {2}


@pytest.mark.parametrize("settings", [{}, {"double": True, "prioritized": True, "n_step": 3}])
def test_the_best_action_is_found(settings):
    policy, learner = _learner(**settings, learning_rate=1e-2, updates_per_step=1.0, gamma=0.5)
    for seed in range(40):
        rollout = _rollout(seed)
        rollout.reward[:] = np.where(rollout.action == 2, 1.0, -1.0)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    assert (policy.act(obs, deterministic=True).action == 2).mean() > 0.95


def test_images_and_networks_of_ones_own_are_learned():
    image = spaces.Box(0, 255, (40, 40, 3), np.uint8)
    policy, learner = _learner(image, updates_per_step=0.1)
    before = policy.model.parameters.copy()
    learner.update(_rollout(0, image))
    assert (policy.model.parameters != before).any()
    config = QRDQNConfig(**SMALL)
    own = QRDQN.make_policy(
        config, OBS, ACTIONS, 0, network=lambda _, a: torch.nn.Linear(3, int(a.n) * 5)
    )
    before = own.model.parameters.copy()
    QRDQN(own, config, B).update(_rollout())
    assert (own.model.parameters != before).any()


def test_a_learner_goes_on_from_its_state():
    policy, learner = _learner(updates_per_step=0.5, prioritized=True)
    learner.update(_rollout(1))
    other_policy, other = _learner(updates_per_step=0.5, prioritized=True)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    rollout = _rollout(2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


def test_what_cannot_be_is_refused():
    with pytest.raises(SpaceError, match="Discrete"):
        QRDQN.make_policy(QRDQNConfig(), OBS, spaces.Box(-1, 1, (2,)), seed=0)
    with pytest.raises(ConfigError, match="num_quantiles"):
        QRDQNConfig(num_quantiles=0)
