"""Episode returns and lengths from reward streams."""

from __future__ import annotations

import numpy as np

from rookery.rollout import EpisodeTracker


def _arrays(reward: list, done: list, valid: list | None = None):
    flags = np.array(done, np.bool_)
    good = np.ones_like(flags) if valid is None else np.array(valid, np.bool_)
    return np.array(reward, np.float32), flags, good


def test_episodes_are_followed_across_rollouts():
    tracker = EpisodeTracker(2)
    first = tracker.add(*_arrays([[1, 10], [2, 20], [3, 30]], [[0, 0], [1, 0], [0, 0]]))
    assert first.env_ids.tolist() == [0]
    assert first.returns.tolist() == [3.0]
    assert first.lengths.tolist() == [2]
    second = tracker.add(*_arrays([[4, 40], [5, 50]], [[0, 1], [1, 1]]))
    assert second.env_ids.tolist() == [0, 1, 1]
    assert second.returns.tolist() == [12.0, 100.0, 50.0]
    assert second.lengths.tolist() == [3, 4, 1]


def test_a_row_that_only_resets_is_no_step_of_an_episode():
    tracker = EpisodeTracker(1)
    reward, done, valid = [[1], [0], [1], [1]], [[1], [0], [0], [1]], [[1], [0], [1], [1]]
    assert tracker.add(*_arrays(reward, done, valid)).lengths.tolist() == [1, 2]


def test_an_episode_that_a_fault_cut_off_is_left_out():
    tracker = EpisodeTracker(1)
    reward, done, valid = [[1], [0], [2]], [[0], [1], [1]], [[1], [0], [1]]
    episodes = tracker.add(*_arrays(reward, done, valid))
    assert episodes.returns.tolist() == [2.0]
    assert len(episodes) == 1


def test_a_rollout_of_some_envs_goes_on_with_their_episodes():
    tracker = EpisodeTracker(3)
    flags = np.ones((1, 2), np.bool_)
    ids = np.array([2, 0])
    tracker.add(np.array([[5, 7]], np.float32), ~flags, flags, ids)
    episodes = tracker.add(np.array([[1, 2]], np.float32), flags, flags, ids[::-1])
    assert episodes.env_ids.tolist() == [0, 2]
    assert episodes.returns.tolist() == [8, 7]
    assert episodes.lengths.tolist() == [2, 2]
