"""Whose rollouts are handed out, with workers that finish when the test says so."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from rookery.collect.actor import ActorReport
from rookery.collect.rollout_queue import RolloutQueue
from rookery.rollout import Rollout


class ScriptedPool:
    """Workers of one env each; ``pace[i]`` is how many waits worker i needs for a rollout."""

    def __init__(self, pace):
        self.pace = pace
        self.shape = SimpleNamespace(num_buffers=2)
        self.workers = [SimpleNamespace(env_ids=range(i, i + 1)) for i in range(len(pace))]
        self.left: dict[int, int] = {}
        self.absent: set[int] = set()
        self.version = 0
        self.buffers = np.zeros((2, len(pace)), np.int64)  # the version that wrote each

    def begin(self, index, buffer):
        assert index not in self.left
        assert index not in self.absent
        self.left[index] = self.pace[index]
        self.buffers[buffer, index] = self.version

    def wait(self):
        while True:
            for index in self.left:
                self.left[index] -= 1
            ready = [index for index, left in self.left.items() if left <= 0]
            if ready:
                return ready

    def finish(self, index):
        del self.left[index]
        return ActorReport(None, 0.0, 0.0)

    def rollout_of(self, buffer, envs):
        rollout = Rollout.allocate(1, np.zeros((1, 1)), np.zeros(1, np.int64))
        rollout.policy_version[:] = self.buffers[buffer, envs]
        rollout.env_ids = np.arange(len(self.pace))[envs]
        return rollout


def _collect(pace, max_policy_lag, num_rollouts=30):
    pool = ScriptedPool(pace)
    queue = RolloutQueue(pool, max_policy_lag)
    rollouts = []
    for version in range(num_rollouts):
        pool.version = version
        rollouts.append(queue.collect(version))
    lags = [version - rollout.policy_version for version, rollout in enumerate(rollouts)]
    return [rollout.env_ids.tolist() for rollout in rollouts], lags


def test_a_worker_that_was_lost_is_neither_waited_for_nor_behind_when_it_comes_back():
    pool = ScriptedPool([1, 1, 1])
    queue = RolloutQueue(pool, max_policy_lag=2)
    handed_out, lags = [], []
    for version in range(30):
        pool.version = version
        if version == 5:  # amid a rollout
            pool.left.pop(1, None)
            pool.absent = {1}
        if version == 20:
            pool.absent = set()
        rollout = queue.collect(version)
        handed_out.append(rollout.env_ids.tolist())
        lags.append((version - rollout.policy_version).max())
    assert all(1 in ids for ids in handed_out[:5] + handed_out[22:])
    assert handed_out[8:20] == [[0, 2]] * 12
    assert max(lags) <= 2


def test_equal_workers_are_handed_out_by_turns():
    env_ids, lags = _collect([1, 1, 1, 1], max_policy_lag=4)
    assert env_ids == [[0, 1], [2, 3]] * 15
    assert max(lag.max() for lag in lags) == 3


def test_a_slow_worker_is_waited_for_before_it_falls_behind_too_far():
    env_ids, lags = _collect([1, 1, 1, 50], max_policy_lag=6)
    assert max(lag.max() for lag in lags) == 6
    turns = [turn for turn, ids in enumerate(env_ids) if 3 in ids]
    assert np.diff(turns).max() <= 7
    assert sum(3 not in ids for ids in env_ids) > len(env_ids) / 2  # the others went on meanwhile


def test_with_little_lag_allowed_all_workers_are_handed_out_every_time():
    env_ids, lags = _collect([1, 5, 2], max_policy_lag=2)
    assert env_ids == [[0, 1, 2]] * 30
    assert {int(lag.max()) for lag in lags[1:]} == {1}


def test_no_worker_is_handed_out_twice_at_a_time():
    env_ids, _ = _collect([1, 1, 9, 9, 9], max_policy_lag=1)
    assert all(len(set(ids)) == len(ids) for ids in env_ids)
