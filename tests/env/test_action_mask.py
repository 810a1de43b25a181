"""Masks that envs tell in infos, shown in observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery.policy import make_policy


class Masked(gym.Env[Any, Any]):
    """Only the action that is told is legal; another one is an error."""

    def __init__(self, action_space: Any = None, obs: Any = None, told: Any = None) -> None:
        self.action_space = action_space or spaces.Discrete(4)
        self.observation_space = obs or spaces.Box(0, 1, (2,), np.float32)
        self._told = told

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> Any:
        if not self._legal[int(action)]:
            raise ValueError(f"action {action} is illegal")
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 5, False, self._info()

    def _info(self) -> dict[str, Any]:
        if self._told is not None:
            return dict(self._told)
        self._legal = np.zeros(4, np.int8)
        self._legal[int(self.np_random.integers(4))] = 1
        return {"action_mask": self._legal}


def test_observations_show_what_infos_tell() -> None:
    env = rookery.ActionMaskFromInfo(Masked())
    obs, info = env.reset(seed=0)
    for _ in range(5):
        np.testing.assert_array_equal(obs["action_mask"], info["action_mask"])
        assert env.observation_space.contains(obs)
        obs, _, terminated, _, info = env.step(int(obs["action_mask"].argmax()))
    assert terminated


def test_dict_observations_get_one_key_more_and_components_lie_side_by_side() -> None:
    inner = Masked(
        spaces.MultiDiscrete([2, 3]),
        spaces.Dict(place=spaces.Discrete(3)),
        {"action_mask": (np.array([0, 1]), np.array([1, 1, 0]))},
    )
    env = rookery.ActionMaskFromInfo(inner)
    obs, _ = env.reset(seed=0)
    assert set(obs) == {"place", "action_mask"}
    assert obs["action_mask"].tolist() == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: Masked(spaces.Box(0, 1, (2,))), "only Discrete and MultiDiscrete"),
        (lambda: Masked(obs=spaces.Dict(action_mask=spaces.MultiBinary(4))), "already"),
        (lambda: Masked(told={"mask": 1}), "no 'action_mask'"),
        (lambda: Masked(told={"action_mask": np.ones(3)}), "3 numbers, .* 4 choices"),
    ],
)
def test_what_cannot_be_masked_is_refused(env: Any, message: str) -> None:
    with pytest.raises(rookery.SpaceError, match=message):
        rookery.ActionMaskFromInfo(env()).reset(seed=0)


def test_masks_that_nobody_reads_are_told_of() -> None:
    with rookery.make_vec(Masked, 2, backend="serial") as venv:
        policy = make_policy(venv.single_observation_space, venv.single_action_space)
        collector = rookery.SyncCollector(venv, policy, 1)
        with pytest.warns(UserWarning, match="ActionMaskFromInfo"):
            collector.reset()
