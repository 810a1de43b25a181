"""The collector in every autoreset mode, on an env whose observations tell where they are from."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import rookery
from rookery.policy import make_policy

MODES = list(AutoresetMode)


class Diary(gym.Env[Any, Any]):
    """Shows (env, episode, step); episodes last ``length`` steps, odd ones are truncated."""

    action_space = spaces.Discrete(2)

    def __init__(self, number: int, length: int, nested: bool = False) -> None:
        box = spaces.Box(-1, 1000, (3,))
        self.observation_space = spaces.Dict(a=box, b=spaces.Discrete(99)) if nested else box
        self._nested = nested
        self._place = np.array([number, -1, 0], np.float32)
        self._length = length

    def _obs(self) -> Any:
        obs = self._place.copy()
        return {"a": obs, "b": np.int64(obs[2])} if self._nested else obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place[1] += 1
        self._place[2] = 0
        return self._obs(), {}

    def step(self, action):
        self._place[2] += 1
        ended = bool(self._place[2] >= self._length)
        odd = bool(self._place[1] % 2)
        return self._obs(), float(self._place[2]), ended and not odd, ended and odd, {}


class Reader(rookery.Policy):
    """Values an observation by its contents, so that tests see which one was valued."""

    def act(self, obs, deterministic=False):
        place = obs["a"] if isinstance(obs, dict) else obs
        value = place @ np.array([10_000, 100, 1], np.float32)
        zeros = np.zeros(len(place), np.int64)
        return rookery.PolicyStep(zeros, np.zeros(len(place), np.float32), value)


def _collect(mode: AutoresetMode, num_steps: int = 5, num_rollouts: int = 1, nested: bool = False):
    makers = [lambda i=i: Diary(i, length=2 + i, nested=nested) for i in range(2)]
    venv = SyncVectorEnv(makers, autoreset_mode=mode)
    collector = rookery.SyncCollector(venv, Reader(), num_steps)
    rollouts = [collector.collect() for _ in range(num_rollouts)]
    venv.close()
    return rollouts


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_rows_final_observations_and_values(mode):
    (rollout,) = _collect(mode)
    # Env 0 has episodes of two steps, env 1 of three.
    assert rollout.obs[:, 0, 1:].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]
    assert rollout.obs[:, 1, 1:].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]
    assert rollout.reward[:, 0].tolist() == [1, 2, 1, 2, 1]
    assert np.argwhere(rollout.terminated).tolist() == [[1, 0], [2, 1]]
    assert np.argwhere(rollout.truncated).tolist() == [[3, 0]]
    assert rollout.final_index.tolist() == [[1, 0], [2, 1], [3, 0]]
    assert rollout.final_obs.tolist() == [[0, 0, 2], [1, 0, 3], [0, 1, 2]]
    assert rollout.last_obs.tolist() == [[0, 2, 1], [1, 1, 2]]
    assert rollout.last_value.tolist() == [201, 10_102]
    assert rollout.valid.all()
    expected = np.zeros((5, 2))
    expected[3, 0] = 102  # the value of (0, 1, 2), the truncated episode's true end
    np.testing.assert_array_equal(rollout.final_value, expected)


def _experience(rollouts: list[rookery.Rollout]) -> dict[int, list]:
    """List what each env really experienced, rows that only reset left out."""
    experience: dict[int, list] = {0: [], 1: []}
    for rollout in rollouts:
        finals = {
            (int(t), int(b)): final
            for (t, b), final in zip(rollout.final_index, rollout.final_obs, strict=True)
        }
        for t, b in np.argwhere(rollout.valid):
            final = finals.get((int(t), int(b)), np.zeros(0))
            row = [*rollout.obs[t, b], rollout.reward[t, b], rollout.value[t, b]]
            ends = [rollout.terminated[t, b], rollout.truncated[t, b], rollout.final_value[t, b]]
            experience[int(b)].append([float(x) for x in (*row, *ends, *final)])
    return experience


def test_all_modes_experience_the_same():
    same, following, disabled = (
        _experience(_collect(mode, num_rollouts=4))
        for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
    )
    assert same == disabled
    for b, rows in following.items():
        assert len(rows) > 10
        assert rows == same[b][: len(rows)]


def test_next_step_marks_the_rows_that_only_reset_also_across_rollouts():
    first, second = _collect(AutoresetMode.NEXT_STEP, num_steps=2, num_rollouts=2)
    assert first.valid.tolist() == [[True, True], [True, True]]
    assert second.valid.tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_dict_observations_keep_their_structure(mode):
    plain, nested = _collect(mode)[0], _collect(mode, nested=True)[0]
    np.testing.assert_array_equal(nested.obs["a"], plain.obs)
    np.testing.assert_array_equal(nested.obs["b"], plain.obs[..., 2])
    np.testing.assert_array_equal(nested.final_obs["a"], plain.final_obs)
    np.testing.assert_array_equal(nested.final_value, plain.final_value)


@pytest.mark.parametrize("copy", [True, False])
def test_rollouts_are_the_callers_unless_they_are_reused(copy):
    venv = rookery.make_vec(
        "CartPole-v1", 2, backend="serial", autoreset_mode="same_step", copy=copy
    )
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    collector = rookery.SyncCollector(venv, policy, 4, seed=0, copy=copy)
    first = collector.collect()
    kept, last = first.obs.copy(), first.last_obs
    second = collector.collect()
    np.testing.assert_array_equal(second.obs[0], last)
    assert np.array_equal(first.obs, kept) is copy
    venv.close()


def test_the_split_policy_gives_what_acting_step_by_step_gives():
    class Whole(rookery.Policy):
        def __init__(self, inner):
            self.inner = inner

        def act(self, obs, deterministic=False):
            return self.inner.act(obs, deterministic)

    rollouts = []
    for wrap in (lambda policy: policy, Whole):
        venv = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
        policy = make_policy(venv.single_observation_space, venv.single_action_space, seed=5)
        rollouts.append(rookery.SyncCollector(venv, wrap(policy), 60, seed=1).collect())
        venv.close()
    split, whole = rollouts
    np.testing.assert_array_equal(split.action, whole.action)
    np.testing.assert_array_equal(split.obs, whole.obs)
    np.testing.assert_allclose(split.log_prob, whole.log_prob, atol=1e-6)
    np.testing.assert_allclose(split.value, whole.value, atol=1e-5)
    np.testing.assert_allclose(split.final_value, whole.final_value, atol=1e-5)


class FaultySync(SyncVectorEnv):
    """Reports a fault of env 1 at the third step, closed as truncated, as vector envs do."""

    count = 0

    def step(self, actions):
        obs, reward, terminated, truncated, info = super().step(actions)
        self.count += 1
        if self.count == 3:
            reward[1], truncated[1] = 0.0, True
            fault = {"cause": "worker died", "env_ids": (1,), "attempt": 1}
            info = self._add_info(info, {"fault": fault}, 1)
        return obs, reward, terminated, truncated, info


def test_a_faulted_transition_is_not_valid():
    venv = FaultySync([lambda: Diary(0, 50)] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    rollout = rookery.SyncCollector(venv, Reader(), 5).collect()
    assert np.argwhere(~rollout.valid).tolist() == [[2, 1]]
    assert rollout.truncated[2, 1]
    venv.close()


def test_rollouts_carry_the_policys_version():
    venv = SyncVectorEnv([lambda: Diary(0, 5)])
    policy = Reader()
    policy.version = 3
    assert rookery.SyncCollector(venv, policy, 2).collect().policy_version.tolist() == [3]
    venv.close()


def test_values_are_left_out_for_learners_that_read_none():
    venv = rookery.make_vec("CartPole-v1", 2, backend="serial")
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    rollout = rookery.SyncCollector(venv, policy, 5, seed=0, values=False).collect()
    venv.close()
    assert not rollout.value.any() and not rollout.log_prob.any()
    assert rollout.reward.all()


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_an_interrupted_rollout_is_continued(mode):
    rollouts = []
    for stops in ((), (3, 4, 11)):
        venv = rookery.make_vec("CartPole-v1", 2, backend="serial", autoreset_mode=mode)
        policy = make_policy(venv.single_observation_space, venv.single_action_space)
        calls = []

        def check(calls=calls, stops=stops):
            calls.append(None)
            if len(calls) in stops:
                raise KeyboardInterrupt

        collector = rookery.SyncCollector(venv, policy, 60, seed=0, between_steps=check)
        for _ in stops:
            with pytest.raises(KeyboardInterrupt):
                collector.collect()
            assert collector.state_dict() is not None
        rollouts.append(collector.collect())
        venv.close()
    for name in ("obs", "action", "reward", "valid", "final_index", "final_obs", "last_value"):
        np.testing.assert_array_equal(*(getattr(rollout, name) for rollout in rollouts))


def test_after_an_interrupted_step_new_episodes_start():
    class Breaks(gym.Wrapper):
        fails = True

        def step(self, action):
            if Breaks.fails:
                raise ValueError("broken")
            return self.env.step(action)

    venv = rookery.make_vec("CartPole-v1", 2, backend="serial", wrappers=[Breaks])
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    collector = rookery.SyncCollector(venv, policy, 4, seed=0)
    with pytest.raises(rookery.EnvFailed):
        collector.collect()
    assert collector.state_dict() is None
    Breaks.fails = False
    assert np.abs(collector.collect().obs[0]).max() <= 0.05  # CartPole begins near zero
    venv.close()
