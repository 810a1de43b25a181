"""The PPO learner."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import nn

from rookery import ConfigError, PPOConfig, Rollout
from rookery.common.trees import stack
from rookery.learn.on_policy.actor_critic import standardized
from rookery.learn.on_policy.batches import Minibatch, advantage_batch
from rookery.learn.on_policy.ppo import PPO
from rookery.policy import make_policy

T, B = 8, 4
SMALL = PPOConfig(num_steps=T, num_epochs=3, minibatch_size=16)
VECTOR = spaces.Box(-1, 1, (3,))
ACTIONS = {
    "discrete": spaces.Discrete(3, start=1),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}
OBSERVATIONS = {
    "vector": VECTOR,
    "dict": spaces.Dict(a=VECTOR, b=spaces.Tuple([spaces.Discrete(4), spaces.MultiBinary(2)])),
    "image": spaces.Dict(eye=spaces.Box(0, 255, (40, 40, 3), np.uint8), ear=VECTOR),
}


def _rollout(policy, observation_space, seed: int = 0) -> Rollout:
    """Make up experience: random observations and rewards, actions of the policy."""
    rng = np.random.default_rng(seed)
    batch = batch_space(observation_space, B)
    batch.seed(seed)
    rows = [batch.sample() for _ in range(T)]
    steps = [policy.act(obs) for obs in rows]
    rollout = Rollout.allocate(T, rows[0], steps[0].action)
    rollout.obs = stack(rows, rows[0])
    for t, step in enumerate(steps):
        rollout.action[t], rollout.log_prob[t], rollout.value[t] = step
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.1
    return rollout


def _learner(config: PPOConfig = SMALL, observation_space=VECTOR, action_space=ACTIONS["discrete"]):
    policy = make_policy(
        observation_space,
        action_space,
        hidden_sizes=config.hidden_sizes,
        normalize_obs=config.normalize_obs,
    )
    return policy, PPO(policy, config, B)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_every_pair_of_spaces_can_be_learned_from(observation, action):
    config = PPOConfig(
        num_epochs=2,
        minibatch_size=20,
        entropy_coef=0.01,
        normalize_obs=True,
        normalize_reward=True,
    )
    space = OBSERVATIONS[observation]
    policy, learner = _learner(config, space, ACTIONS[action])
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(policy, space))
    assert np.isfinite(policy.model.parameters).all()
    assert (policy.model.parameters != before).any()
    assert np.isfinite(list(metrics.values())).all()


def test_good_actions_become_more_probable():
    policy, learner = _learner(PPOConfig(learning_rate=1e-2, num_epochs=20))
    obs = np.zeros((100, 3), np.float32)
    for seed in range(5):
        rollout = _rollout(policy, VECTOR, seed)
        rollout.reward[:] = rollout.action == 2
        rollout.terminated[:] = True
        learner.update(rollout)
    assert np.mean(policy.act(obs).action == 2) > 0.9


def test_invalid_rows_teach_nothing():
    outcomes = []
    for garbage in (0.0, 1e6):
        policy, learner = _learner()
        rollout = _rollout(policy, VECTOR)
        rollout.truncated[2, 1] = rollout.truncated[5, 3] = True
        rollout.valid[3, 1] = rollout.valid[5, 3] = False
        rollout.reward[~rollout.valid] = garbage
        rollout.log_prob[~rollout.valid] = -garbage
        rollout.obs[3, 1] = garbage
        learner.update(rollout)
        outcomes.append(policy.model.parameters)
    np.testing.assert_array_equal(*outcomes)


def test_a_rollout_without_valid_rows_changes_nothing():
    policy, learner = _learner(PPOConfig(normalize_obs=True, normalize_reward=True))
    before = policy.model.parameters.copy()
    rollout = _rollout(policy, VECTOR)
    rollout.valid[:] = False
    learner.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, before)
    assert policy.model.module.normalizer.moments.count == 0


def test_schedules_go_linearly_from_start_to_final():
    config = PPOConfig(
        learning_rate=1e-3, final_learning_rate=0.0, clip_range=0.2, final_clip_range=0.1
    )
    policy, learner = _learner(config)
    metrics = learner.update(_rollout(policy, VECTOR), progress=0.25)
    assert metrics["learning_rate"] == pytest.approx(7.5e-4)
    assert metrics["clip_range"] == pytest.approx(0.175)


def test_a_large_divergence_ends_the_epochs():
    policy, learner = _learner(PPOConfig(learning_rate=0.1, num_epochs=10, target_kl=0.01))
    assert learner.update(_rollout(policy, VECTOR))["epochs"] < 10


def test_divergence_is_looked_at_after_every_minibatch(monkeypatch):
    policy, learner = _learner(PPOConfig(num_epochs=1, minibatch_size=8, target_kl=0.01))
    steps = []

    def step(*_):
        steps.append(0)
        return {"approximate_kl": 0.02 * len(steps) - 0.02, "skipped_gradient_steps": 0.0}

    monkeypatch.setattr(learner, "_step", step)
    learner.update(_rollout(policy, VECTOR))
    assert len(steps) == 2


def test_the_gradient_is_no_longer_than_allowed():
    config = PPOConfig(max_grad_norm=1e-9, num_epochs=1, learning_rate=1e-3)
    policy, learner = _learner(config)
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(policy, VECTOR))
    assert metrics["gradient_norm"] > 1e-3
    # Adam divides by the gradient's size plus 1e-5, so a tiny gradient makes a tiny step.
    assert np.abs(policy.model.parameters - before).max() < 1e-6


def _batch(learner: PPO, rollout: Rollout) -> Minibatch:
    config = learner.config
    discounts = config.gamma, config.gae_lambda
    return advantage_batch(rollout, rollout.reward, learner._place, *discounts, 1)


@pytest.mark.parametrize("minibatch_size", [5, 10, T * B - 1, T * B, 1000])
def test_minibatches_hold_every_transition_once_and_are_equally_large(minibatch_size):
    policy, learner = _learner(PPOConfig(minibatch_size=minibatch_size, num_epochs=1))
    rollout = _rollout(policy, VECTOR)
    batch = _batch(learner, rollout)
    parts = [part for _, part in learner._minibatches(batch, rollout.valid)]
    assert sorted(torch.cat([part.returns for part in parts])) == sorted(batch.returns[0])
    sizes = [len(part.returns) for part in parts]
    assert max(sizes) <= minibatch_size and max(sizes) - min(sizes) <= 1


def test_one_transition_alone_keeps_its_advantage():
    advantage = torch.tensor([3.0])
    assert standardized(advantage) == advantage


def _gae_by_hand(rollout: Rollout, gamma: float, lam: float) -> np.ndarray:
    """Walk every env's column backwards, one number at a time."""
    advantage = np.zeros((T, B))
    for b in range(B):
        following, carried = float(rollout.last_value[b]), 0.0
        for t in reversed(range(T)):
            if rollout.terminated[t, b]:
                following, carried = 0.0, 0.0
            elif rollout.truncated[t, b]:
                following, carried = float(rollout.final_value[t, b]), 0.0
            delta = rollout.reward[t, b] + gamma * following - rollout.value[t, b]
            advantage[t, b] = carried = delta + gamma * lam * carried
            following = float(rollout.value[t, b])
    return advantage


@pytest.mark.parametrize("action", ["discrete", "multi_discrete", "multi_binary", "box"])
@pytest.mark.parametrize("value_clip_range", [None, 0.05])
def test_the_loss_is_the_papers_by_torchs_own_distributions(action, value_clip_range):
    config = PPOConfig(entropy_coef=0.03, value_clip_range=value_clip_range, clip_range=0.1)
    policy, learner = _learner(config, VECTOR, ACTIONS[action])
    rollout = _rollout(policy, VECTOR)
    rollout.truncated[3, 2], rollout.final_value[3, 2] = True, 0.7
    rollout.last_value[:] = 0.3
    learner.update(rollout)  # away from the weights that acted, so that ratios are not one
    advantage = _gae_by_hand(rollout, config.gamma, config.gae_lambda)
    returns = torch.from_numpy(advantage + rollout.value).flatten()
    found = policy.model.module(torch.from_numpy(rollout.obs.reshape(-1, 3)))
    taken = torch.from_numpy(policy.layout.encode(rollout.action.reshape(T * B, -1)[..., :]))
    if action == "discrete":
        taken = torch.from_numpy(rollout.action.reshape(-1, 1) - 1)
    log_prob, entropy = _by_torch(action, policy, found.outputs, taken)
    ratio = torch.exp(log_prob - torch.from_numpy(rollout.log_prob).flatten())
    scaled = torch.from_numpy((advantage - advantage.mean()) / (advantage.std() + 1e-8)).flatten()
    terms = [min(float(r * a), float(np.clip(r, 0.9, 1.1) * a)) for r, a in
             zip(ratio.detach().numpy(), scaled.numpy(), strict=True)]  # fmt: skip
    errors = (found.value - returns).square()
    if value_clip_range is not None:
        old = torch.from_numpy(rollout.value).flatten()
        near = old + (found.value - old).clamp(-value_clip_range, value_clip_range)
        errors = torch.maximum(errors, (near - returns).square())
    expected = -np.mean(terms) + 0.5 * errors.mean().item() - 0.03 * entropy.mean().item()
    loss = learner.loss(_batch(learner, rollout).steps())
    assert loss["loss"].item() == pytest.approx(expected, abs=1e-4)
    assert loss["clip_fraction"].item() == pytest.approx(
        ((ratio - 1).abs() > 0.1).float().mean().item()
    )


def _by_torch(action, policy, outputs, taken):
    if action == "discrete":
        drawn = torch.distributions.Categorical(logits=outputs)
        return drawn.log_prob(taken[:, 0]), drawn.entropy()
    if action == "multi_discrete":
        parts = [torch.distributions.Categorical(logits=o) for o in outputs.split([2, 3], 1)]
        logs = [part.log_prob(taken[:, k]) for k, part in enumerate(parts)]
        return sum(logs), sum(part.entropy() for part in parts)
    if action == "multi_binary":
        drawn = torch.distributions.Bernoulli(logits=outputs)
    else:
        std = policy.model.module.head.log_std.exp().expand_as(outputs)
        drawn = torch.distributions.Normal(outputs, std)
    return drawn.log_prob(taken.float()).sum(1), drawn.entropy().sum(1)


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("normalize_reward", [False, True])
def test_numbers_that_are_not_finite_change_nothing_and_are_counted(number, normalize_reward):
    config = PPOConfig(
        minibatch_size=8, num_epochs=2, learning_rate=1e-3, normalize_reward=normalize_reward,
        normalize_advantage=False,
    )  # fmt: skip
    policy, learner = _learner(config)
    before = policy.model.parameters.copy()
    rollout = _rollout(policy, VECTOR)
    rollout.reward[:] = np.nan if normalize_reward else number
    with np.errstate(invalid="ignore", over="ignore"):
        metrics = learner.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, before)
    assert metrics["skipped_gradient_steps"] == 8
    assert not np.isfinite(metrics["gradient_norm"])
    learner.update(_rollout(policy, VECTOR))  # and it goes on from there
    assert np.isfinite(policy.model.parameters).all()
    assert (policy.model.parameters != before).any()


@pytest.mark.parametrize("fused", [True, False])
def test_a_ratio_that_overflows_leaves_the_parameters_finite(fused):
    policy, _ = _learner()
    learner = PPO(policy, PPOConfig(num_epochs=2, minibatch_size=8), B, fused=fused)
    rollout = _rollout(policy, VECTOR)
    rollout.log_prob[2, 1] = -1e4
    with np.errstate(over="ignore", invalid="ignore"):
        metrics = learner.update(rollout)
    assert metrics["skipped_gradient_steps"] >= 1
    assert np.isfinite(policy.model.parameters).all()


@pytest.mark.parametrize("observation", ["vector", "dict"])
@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("hidden_sizes", [(), (16,), (32, 16)])
def test_gradients_by_hand_are_those_of_torch(observation, action, activation, hidden_sizes):
    config = PPOConfig(
        num_epochs=3, minibatch_size=10, entropy_coef=0.01, value_clip_range=0.1,
        normalize_obs=True, activation=activation, hidden_sizes=hidden_sizes,
    )  # fmt: skip
    outcomes = []
    for fused in (True, False):
        space = OBSERVATIONS[observation]
        policy = PPO.make_policy(config, space, ACTIONS[action], 0)
        learner = PPO(policy, config, B, fused=fused)
        assert (learner._fused is not None) == fused
        metrics = learner.update(_rollout(policy, space))
        outcomes.append((policy.model.parameters, metrics))
    np.testing.assert_allclose(outcomes[0][0], outcomes[1][0], atol=1e-5)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-3, abs=1e-4)


class Shared(nn.Module):
    """Actor and critic on one trunk, as users write them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, 16), nn.SiLU(), nn.LayerNorm(16))
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)

    def forward(self, obs):
        features = self.trunk(obs)
        return self.actor(features), self.critic(features)[:, 0]


class ActorAlone(nn.Linear):
    """Gives outputs and no value."""


@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize("kind", [Shared, ActorAlone])
def test_losses_behind_an_own_network_have_the_gradients_of_torch(action, kind):
    config = PPOConfig(
        num_epochs=3, minibatch_size=10, entropy_coef=0.01, value_clip_range=0.1, normalize_obs=True
    )
    outcomes = []
    for fused in (True, False):
        sizes = VECTOR.shape[0], 3 if action == "discrete" else 2
        policy = PPO.make_policy(
            config, VECTOR, ACTIONS[action], 0, network=lambda *_, sizes=sizes: kind(*sizes)
        )
        learner = PPO(policy, config, B, fused=fused)
        assert (learner._fused is not None) == fused
        metrics = learner.update(_rollout(policy, VECTOR))
        outcomes.append((policy.model.parameters.copy(), metrics))
    np.testing.assert_allclose(outcomes[0][0], outcomes[1][0], atol=1e-5)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-3, abs=1e-4)


def test_a_learner_goes_on_from_its_state():
    config = PPOConfig(num_epochs=2, minibatch_size=8, normalize_obs=True, normalize_reward=True)
    policy, learner = _learner(config)
    learner.update(_rollout(policy, VECTOR, seed=1))
    other_policy, other = _learner(config)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    rollout = _rollout(policy, VECTOR, seed=2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


@pytest.mark.parametrize(
    "wrong",
    [{"gamma": 1.5}, {"num_steps": 0}, {"activation": "swish"}, {"clip_range": -1.0}],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        PPOConfig(**wrong)


def test_a_config_survives_json():
    import json

    config = PPOConfig(hidden_sizes=(32, 16), target_kl=0.1)
    assert PPOConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
