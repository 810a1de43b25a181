"""Running statistics against numpy's over all the data at once."""

from __future__ import annotations

import numpy as np

from rookery.rollout import RewardScaler, Rollout, RunningMoments


def test_merged_batches_have_the_moments_of_all_their_samples():
    rng = np.random.default_rng(0)
    batches = [1e4 + rng.normal(size=(n, 3)) * [1, 5, 0.1] for n in (1, 7, 0, 40)]
    moments = RunningMoments((3,))
    for batch in batches:
        moments.update(batch.astype(np.float64))
    everything = np.concatenate(batches)
    assert moments.count == 48
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0))
    np.testing.assert_allclose(moments.variance, everything.var(axis=0), rtol=1e-9)


def test_normalised_values_have_unit_scale_and_are_clipped():
    moments = RunningMoments((1,))
    moments.update(np.array([[0.0], [4.0]]))
    values = moments.normalize(np.array([[2.0], [4.0], [1e6]], np.float32), 10.0)
    np.testing.assert_allclose(values, [[0.0], [1.0], [10.0]], atol=1e-6)


def test_nothing_seen_changes_nothing():
    values = np.array([[3.0]], np.float32)
    np.testing.assert_allclose(RunningMoments((1,)).normalize(values, 10.0), values)


def test_moments_survive_their_state():
    moments, other = RunningMoments((2,)), RunningMoments((2,))
    moments.update(np.arange(10.0).reshape(5, 2))
    other.load_state_dict(moments.state_dict())
    more, values = np.array([[7.0, -1.0]]), np.ones((1, 2), np.float32)
    for each in (moments, other):
        each.update(more)
    np.testing.assert_array_equal(moments.normalize(values, 10), other.normalize(values, 10))


def _rollout(reward: list, terminated: list) -> Rollout:
    flags = np.array(terminated, np.bool_)
    num_envs = flags.shape[1]
    rollout = Rollout.allocate(len(flags), np.zeros((num_envs, 1)), np.zeros(num_envs, np.int64))
    rollout.reward[:] = reward
    rollout.terminated[:] = flags
    return rollout


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    scaler = RewardScaler(1, gamma=0.5)
    scaled = scaler.scale(_rollout([[2], [2], [4]], [[0], [1], [0]]))
    deviation = np.std([2.0, 3.0, 4.0])  # the return starts anew after the termination
    np.testing.assert_allclose(scaled[:, 0], np.array([2, 2, 4]) / deviation, rtol=1e-5)


def test_the_return_is_carried_into_the_next_rollout():
    scaler = RewardScaler(1, gamma=0.5)
    scaler.scale(_rollout([[2]], [[0]]))
    scaler.scale(_rollout([[2]], [[0]]))
    np.testing.assert_allclose(scaler.moments.mean, np.mean([2.0, 3.0]))
