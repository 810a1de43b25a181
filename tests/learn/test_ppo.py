"""The PPO learner."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rookery import ConfigError, PPOConfig, Rollout
from rookery.learn.ppo import PPO
from rookery.policy import make_policy
from rookery.rollout.tree import stack

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
    assert policy.model.normalizer.count == 0


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


def test_the_gradient_is_no_longer_than_allowed():
    config = PPOConfig(max_grad_norm=1e-9, num_epochs=1, learning_rate=1e-3)
    policy, learner = _learner(config)
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(policy, VECTOR))
    assert metrics["gradient_norm"] > 1e-3
    # Adam divides by the gradient's size plus 1e-5, so a tiny gradient makes a tiny step.
    assert np.abs(policy.model.parameters - before).max() < 1e-6


@pytest.mark.parametrize("minibatch_size", [10, T * B, 1000])
def test_minibatches_hold_every_transition_once(minibatch_size):
    policy, learner = _learner(PPOConfig(minibatch_size=minibatch_size))
    batch = learner._batch(_rollout(policy, VECTOR))
    parts = list(learner._minibatches(batch))
    assert sorted(np.concatenate([part.returns for part in parts])) == sorted(batch.returns)
    assert max(len(part) for part in parts) <= max(minibatch_size, 1)


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
    assert other.num_updates == 2


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
