"""One policy for envs in workers, which acts on whichever are ready."""

from __future__ import annotations

import time
from dataclasses import fields
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from certain import Certain
from interruption import interrupted

import rookery
from rookery.policy import make_policy
from rookery.testing.faulty import Fault, Faulty

T = 30
N = 5


class Counting(rookery.Policy):
    """Its values are the first numbers of observations; it notes on how many envs it acts."""

    def __init__(self, actions=()):
        self.batches: list[int] = []
        self.actions = list(actions)

    def act(self, obs, deterministic=False):
        self.batches.append(len(obs))
        action = np.zeros(len(obs), np.int64)
        if self.actions:
            action[0] = self.actions.pop(0)
        return rookery.PolicyStep(action, -obs[:, 0], obs[:, 0])


def _make(env="CartPole-v1", num_envs=N, mode="same_step", **options):
    return rookery.make_vec(
        env, num_envs, backend="process", num_workers=2, caller_steps=False, autoreset_mode=mode,
        **options,
    )  # fmt: skip


def _same(rollout, other):
    for field in fields(rookery.Rollout):
        np.testing.assert_array_equal(
            getattr(rollout, field.name), getattr(other, field.name), err_msg=field.name
        )


def _collected(collector_of, venv, count=3):
    collector = collector_of(venv, Certain(venv), T, seed=5)
    return [collector.collect() for _ in range(count)]


@pytest.mark.parametrize("min_envs", [1, 3, N])
def test_it_collects_what_a_collector_does_that_waits_for_all(min_envs):
    with _make() as venv:
        served = _collected(partial(rookery.ServedCollector, min_envs=min_envs), venv)
    with rookery.make_vec("CartPole-v1", N, backend="serial", autoreset_mode="same_step") as venv:
        expected = _collected(rookery.SyncCollector, venv)
    assert sum(len(rollout.final_index) for rollout in expected) > 10
    for rollout, other in zip(served, expected, strict=True):
        _same(rollout, other)


class Patient(Faulty):
    """Of two, the first steps only once the other has made all steps of a rollout."""

    def __init__(self, is_first: bool, mark: Path) -> None:
        super().__init__()
        self.is_first, self.mark = is_first, mark

    def step(self, action):
        result = super().step(action)
        if self.is_first:
            while not self.mark.exists():
                time.sleep(0.01)
        elif result[0][0] == T:
            self.mark.touch()
        return result


def test_no_env_waits_for_another_before_the_rollout_is_whole(tmp_path):
    envs = [partial(Patient, is_first, tmp_path / "mark") for is_first in (True, False)]
    with rookery.make_vec(
        envs, backend="process", num_workers=2, caller_steps=False, autoreset_mode="same_step"
    ) as venv:
        rollout = rookery.ServedCollector(venv, Counting(), T).collect()
    assert rollout.obs[:, :, 0].tolist() == [[t, t] for t in range(T)]
    assert rollout.last_obs[:, 0].tolist() == [T, T]


def test_log_probabilities_and_values_are_stored_with_their_step():
    policy = Counting()
    with _make(Faulty) as venv:
        collector = rookery.ServedCollector(venv, policy, T, min_envs=2)
        first, second = collector.collect(), collector.collect()
    for rollout in (first, second):
        np.testing.assert_array_equal(rollout.value, rollout.obs[:, :, 0])
        np.testing.assert_array_equal(rollout.log_prob, -rollout.obs[:, :, 0])
    assert second.obs[:, 0, 0].tolist() == list(range(T, 2 * T))
    assert first.after_reset.all() and not second.after_reset.any()
    assert sum(policy.batches) == 2 * T * N + 2 * N  # and the values of the last observations
    assert set(policy.batches[:10]) <= set(range(2, N + 1))


class AllFail(Counting):
    """Has all envs of its third batch fail."""

    def act(self, obs, deterministic=False):
        step = super().act(obs)
        if len(self.batches) == 3:
            step.action[:] = Fault.RAISE
        return step


@pytest.mark.parametrize(
    ("policy", "min_envs"), [(Counting([0, 0, Fault.RAISE]), 1), (AllFail(), N)], ids=["one", "all"]
)
def test_after_an_error_the_next_rollout_starts_new_episodes(policy, min_envs):
    with _make(Faulty) as venv:
        collector = rookery.ServedCollector(venv, policy, T, min_envs=min_envs)
        with pytest.raises(rookery.EnvFailed, match="lost key"):
            collector.collect()
        assert collector.collect().obs[:, :, 0].tolist() == [[t] * N for t in range(T)]


def test_a_fault_costs_the_row_in_which_it_occurs():
    policy = Counting([0, 0, Fault.KILL])
    with _make(Faulty, faults=rookery.FaultPolicy("restart")) as venv:
        collector = rookery.ServedCollector(venv, policy, T)
        rollout = collector.collect()
        statistics, telemetry = collector.statistics(), collector.telemetry()
    assert statistics.restarts == 1
    assert 1 <= statistics.lost_rows == (~rollout.valid).sum() <= 3  # of a worker's envs
    assert len(telemetry.envs) == N


def test_an_exception_between_steps_loses_no_step():
    calls = 0

    def check():
        nonlocal calls
        calls += 1
        if calls % 10 == 0:
            raise KeyboardInterrupt

    def collected(collector):
        while True:
            try:
                return collector.collect()
            except KeyboardInterrupt:
                continue

    with _make() as venv:
        collector = rookery.ServedCollector(venv, Certain(venv), T, seed=5, between_steps=check)
        interrupted = [collected(collector) for _ in range(3)]
    with _make() as venv:
        expected = _collected(rookery.ServedCollector, venv)
    assert calls > 10
    for rollout, other in zip(interrupted, expected, strict=True):
        _same(rollout, other)


def test_after_a_ctrl_c_at_any_line_the_next_rollout_is_whole():
    steps = 3
    with _make(Faulty) as venv:
        collector = rookery.ServedCollector(venv, Counting(), steps)
        is_interrupted, line = True, 0
        while is_interrupted:
            line += 7
            try:
                interrupted(collector.collect, line)
                is_interrupted = False
            except KeyboardInterrupt:
                rollout = collector.collect()
                seen = np.concatenate([rollout.obs, rollout.last_obs[None]])[:, :, 0]
                np.testing.assert_array_equal(np.diff(seen, axis=0), np.ones((steps, N)))
                np.testing.assert_array_equal(rollout.after_reset, seen[0] == 0)
    assert line > 100


class Told(gym.Env):
    """Shows a Dict with a text, and tells a number when its episode ends."""

    observation_space = gym.spaces.Dict(
        {"at": gym.spaces.Box(0, 99, (1,), np.float32), "word": gym.spaces.Text(8)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self._obs(), {}

    def step(self, action):
        self.at += 1
        return self._obs(), 1.0, self.at == 7, False, {"score": float(self.at)}

    def _obs(self):
        return {"at": np.array([self.at], np.float32), "word": "w" * (self.at % 3)}


class Zeros(rookery.Policy):
    def act(self, obs, deterministic=False):
        zeros = np.zeros(len(obs["at"]), np.float32)
        return rookery.PolicyStep(zeros.astype(np.int64), zeros, zeros)


def test_texts_and_numbers_of_ends_are_carried():
    with _make(Told) as venv:
        served = rookery.ServedCollector(venv, Zeros(), T, info_keys=("score",)).collect()
    with rookery.make_vec(Told, N, backend="serial", autoreset_mode="same_step") as venv:
        expected = rookery.SyncCollector(venv, Zeros(), T, info_keys=("score",)).collect()
    assert served.final_info["score"].tolist() == [7.0] * (N * (T // 7))
    for name in ("at", "word"):
        np.testing.assert_array_equal(served.obs[name], expected.obs[name])
        np.testing.assert_array_equal(served.final_obs[name], expected.final_obs[name])
    np.testing.assert_array_equal(served.final_index, expected.final_index)


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_other_autoreset_modes_are_refused(mode):
    with _make(mode=mode) as venv, pytest.raises(rookery.ConfigError, match="same_step"):
        rookery.ServedCollector(venv, Counting(), T)


@pytest.mark.parametrize("min_envs", [0, N + 1])
def test_impossible_batch_sizes_are_refused(min_envs):
    with _make() as venv, pytest.raises(rookery.ConfigError, match=f"1 to {N}"):
        rookery.ServedCollector(venv, Counting(), T, min_envs=min_envs)


@pytest.mark.parametrize("collector", [rookery.ServedCollector, rookery.DoubleBufferedCollector])
@pytest.mark.parametrize("kept", [{"core": "gru"}, {"state_dependent_noise": True}], ids=str)
def test_policies_that_hold_something_for_each_env_are_refused(collector, kept):
    with _make("Pendulum-v1") as venv, _make("Pendulum-v1") as other:
        spaces = venv.single_observation_space, venv.single_action_space
        policy = make_policy(*spaces, **kept)
        venvs = venv if collector is rookery.ServedCollector else (venv, other)
        with pytest.raises(rookery.ConfigError, match="does not support"):
            collector(venvs, policy, T)
