"""The replay against a naive one that keeps every transition by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.rollout import Rollout
from rookery.rollout.priorities import SumTree
from rookery.rollout.replay import Replay

GAMMA = 0.5


@dataclass
class Step:
    """One transition as a plain loop would note it."""

    obs: float
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    next_obs: float


class Stream:
    """Makes up experience; every observation is a number of its own."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0
        self.obs = self._fresh(num_envs)
        self.steps: list[list[Step]] = [[] for _ in range(num_envs)]

    def _fresh(self, size: int) -> np.ndarray:
        self.count += size
        return np.arange(self.count - size, self.count, dtype=np.float32)[:, None]

    def rollout(self, num_steps: int) -> Rollout:
        rng, num_envs = self.rng, len(self.steps)
        rollout = Rollout.allocate(num_steps, self.obs, np.zeros(num_envs, np.int64))
        finals = []
        for t in range(num_steps):
            rollout.obs[t] = self.obs
            rollout.reward[t] = rng.integers(1, 9, num_envs)
            rollout.terminated[t] = rng.random(num_envs) < 0.15
            rollout.truncated[t] = rng.random(num_envs) < 0.15
            rollout.valid[t] = rng.random(num_envs) < 0.85
            following, after = self._fresh(num_envs), self._fresh(num_envs)
            for b in range(num_envs):
                self.steps[b].append(
                    Step(
                        self.obs[b, 0],
                        rollout.reward[t, b],
                        rollout.terminated[t, b],
                        rollout.truncated[t, b],
                        rollout.valid[t, b],
                        following[b, 0],
                    )
                )
                if rollout.done[t, b]:
                    finals.append((t, b, following[b].copy()))
                    following[b] = after[b]  # the next episode's first observation
            self.obs = following
        rollout.last_obs = self.obs
        rollout.final_index = np.array([(t, b) for t, b, _ in finals], np.int64).reshape(-1, 2)
        rollout.final_obs = np.array([o for _, _, o in finals], np.float32).reshape(-1, 1)
        return rollout


def _naive(steps: list[Step], start: int, n_step: int) -> tuple[float, float, float]:
    """Sum rewards one by one; return the sum, the bootstrap's observation and its discount."""
    total, discount = 0.0, 1.0
    for step in steps[start : start + n_step]:
        if not step.valid:
            break
        total += discount * step.reward
        discount *= GAMMA
        next_obs = step.next_obs
        if step.terminated:
            return total, next_obs, 0.0
        if step.truncated:
            break
    return total, next_obs, discount


@settings(max_examples=60, deadline=None)
@given(
    num_envs=st.integers(1, 3),
    num_rows=st.integers(4, 12),
    n_step=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    seed=st.integers(0, 2**16),
)
def test_every_transition_equals_the_naive_one(num_envs, num_rows, n_step, lengths, seed):
    stream = Stream(num_envs, seed)
    replay = Replay(num_rows, num_envs, gamma=GAMMA, n_step=n_step)
    for length in lengths:
        replay.add(stream.rollout(length))
    kept = min(sum(lengths), num_rows)
    expected = {}
    for steps in stream.steps:
        for start in range(len(steps) - kept, len(steps)):
            if steps[start].valid:
                expected[steps[start].obs] = _naive(steps, start, n_step)
    assert len(replay) == len(expected)
    if not expected:
        return
    drawn = replay.sample(40 * len(expected), np.random.default_rng(0))
    assert set(drawn.obs[:, 0].tolist()) <= set(expected)
    if len(expected) < 12:
        assert set(drawn.obs[:, 0].tolist()) == set(expected)
    for obs, reward, next_obs, discount in zip(
        drawn.obs[:, 0], drawn.reward, drawn.next_obs[:, 0], drawn.discount, strict=True
    ):
        total, following, factor = expected[obs]
        assert (reward, discount) == (total, factor)
        assert discount == 0.0 or next_obs == following


def _filled(**options) -> tuple[Replay, Stream]:
    stream, replay = Stream(2, seed=3), Replay(8, 2, gamma=GAMMA, **options)
    for _ in range(3):
        replay.add(stream.rollout(4))
    return replay, stream


@pytest.mark.parametrize("options", [{}, {"n_step": 3, "priority_exponent": 0.6}], ids=str)
def test_a_replay_goes_on_from_its_state(options):
    replay, stream = _filled(**options)
    twin = Replay(8, 2, gamma=GAMMA, **options)
    twin.load_state_dict(replay.state_dict())
    for _ in range(2):
        rollout = stream.rollout(3)
        for one in (replay, twin):
            one.add(rollout)
            one.set_errors(one.sample(5, np.random.default_rng(1)).place, np.ones(5, np.float32))
    for a, b in zip(*(r.sample(30, np.random.default_rng(2)) for r in (replay, twin)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_replay_that_is_not_full_goes_on_from_its_state():
    stream, replay = Stream(2, seed=3), Replay(100, 2, gamma=GAMMA)
    replay.add(stream.rollout(6))
    twin = Replay(100, 2, gamma=GAMMA)
    assert len(replay.state_dict()["rows"]["reward"]) == 7
    twin.load_state_dict(replay.state_dict())
    rollout = stream.rollout(5)
    for one in (replay, twin):
        one.add(rollout)
    for a, b in zip(*(r.sample(30, np.random.default_rng(2)) for r in (replay, twin)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_abandoned_episodes_bootstrap_from_the_last_observation_they_showed():
    replay, stream = _filled(n_step=4)
    last = {steps[-1].obs: steps[-1] for steps in stream.steps if steps[-1].valid}
    stream.obs = stream._fresh(2)  # reset from outside
    rollout = stream.rollout(4)
    rollout.after_reset[:] = True
    replay.add(rollout)
    drawn = replay.sample(500, np.random.default_rng(0))
    seen = {float(o): (float(n), float(d)) for o, n, d in
            zip(drawn.obs[:, 0], drawn.next_obs[:, 0], drawn.discount, strict=True)}  # fmt: skip
    assert last
    for obs, step in last.items():
        next_obs, discount = seen[obs]
        assert discount == (0.0 if step.terminated else GAMMA)
        assert step.terminated or next_obs == step.next_obs


def test_prioritised_drawing_follows_the_errors_and_the_weights_undo_it():
    stream, replay = Stream(1, seed=0), Replay(3, 1, gamma=GAMMA, priority_exponent=1.0)
    rollout = stream.rollout(3)
    rollout.valid[:] = [[True], [False], [True]]
    replay.add(rollout)
    replay.set_errors(np.array([0, 2]), np.array([1.0, -3.0], np.float32))
    drawn = replay.sample(4000, np.random.default_rng(0))
    share = (drawn.place == 2).mean()
    assert set(drawn.place.tolist()) == {0, 2}
    assert share == pytest.approx(0.75, abs=0.01)
    np.testing.assert_allclose(drawn.weight[drawn.place == 0], 1.0, rtol=1e-5)
    np.testing.assert_allclose(drawn.weight[drawn.place == 2], 1 / 3, rtol=1e-5)


def test_new_transitions_get_the_largest_priority_so_far():
    stream, replay = Stream(1, seed=0), Replay(8, 1, gamma=GAMMA, priority_exponent=1.0)
    for _ in range(2):
        rollout = stream.rollout(2)
        rollout.valid[:] = True
        replay.add(rollout)
        replay.set_errors(np.array([0, 1]), np.array([9.0, 1e-3], np.float32))
    drawn = replay.sample(3000, np.random.default_rng(0))
    shares = np.bincount(drawn.place, minlength=4) / 3000
    np.testing.assert_allclose(shares[[0, 2, 3]], 1 / 3, atol=0.02)


@settings(max_examples=50, deadline=None)
@given(weights=st.lists(st.integers(0, 5), min_size=1, max_size=33), seed=st.integers(0, 99))
def test_a_sum_tree_finds_what_a_running_sum_finds(weights, seed):
    tree = SumTree(len(weights))
    order = np.random.default_rng(seed).permutation(len(weights))
    tree.set(order, np.array(weights, np.float64)[order])
    assert tree.total == sum(weights)
    mass = np.arange(sum(weights)) + 0.5
    expected = np.searchsorted(np.cumsum(weights), mass, side="right")
    np.testing.assert_array_equal(tree.find(mass), expected)


@pytest.mark.parametrize("n_step", [1, 3])
def test_rollouts_of_some_envs_are_kept_as_those_of_all(n_step: int):
    streams = [Stream(2, seed=k) for k in range(3)]
    replay = Replay(12, 6, gamma=GAMMA, n_step=n_step)
    alone = [Replay(12, 2, gamma=GAMMA, n_step=n_step) for _ in range(3)]
    rng = np.random.default_rng(0)
    for _ in range(25):
        k = int(rng.integers(3))
        rollout = streams[k].rollout(int(rng.integers(1, 6)))
        alone[k].add(rollout)
        rollout.env_ids = np.array([2 * k, 2 * k + 1])
        replay.add(rollout)
    assert len(replay) == sum(map(len, alone))
    drawn = replay.sample(3000, np.random.default_rng(1))
    own = np.array([place % 6 // 2 for place in drawn.place])
    for k, one in enumerate(alone):
        rows = drawn.place[own == k] // 6 * 2 + drawn.place[own == k] % 2
        expected = one.gather(rows)
        for name in ("obs", "reward", "next_obs", "discount"):
            np.testing.assert_array_equal(getattr(drawn, name)[own == k], getattr(expected, name))
        assert len(set(rows.tolist())) == len(one)  # all of them are drawn


def test_a_state_holds_no_copy_of_the_rows():
    replay, _ = _filled(priority_exponent=0.6)
    state = replay.state_dict()
    for name, rows in state["rows"].items():
        assert np.shares_memory(rows, replay._rows[name])


def test_paths_hold_what_lay_between():
    stream, replay = Stream(1, seed=0), Replay(20, 1, gamma=GAMMA, n_step=3, with_path=True)
    rollout = stream.rollout(6)
    rollout.valid[:], rollout.terminated[:], rollout.truncated[:] = True, False, False
    rollout.terminated[3] = True
    rollout.final_index = np.zeros((0, 2), np.int64)
    replay.add(rollout)
    found = replay.gather(np.array([0, 2, 3]))
    np.testing.assert_array_equal(found.path_obs[:, 0], rollout.obs[1:3, 0])
    np.testing.assert_array_equal(found.path_discount, [[0.5, 0.5, 0.0], [0.25, 0.0, 0.0]])
