"""Envs that people train on, of other packages, equal SyncVectorEnv bit for bit."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium as gym
import pytest
from backends import BACKENDS
from gymnasium.vector import SyncVectorEnv
from trajectories import assert_same, run

import rookery

NUM_STEPS = 25
ENVS: dict[str, dict[str, Any]] = {
    "ale_py:ALE/Pong-v5": {"frameskip": 4},
    "minigrid:MiniGrid-DoorKey-5x5-v0": {},
    "HalfCheetah-v5": {},
    "LunarLander-v3": {},
    "CarRacing-v3": {"continuous": False},
}


@functools.cache
def _expected(name: str) -> list[Any]:
    plain = SyncVectorEnv([lambda: gym.make(name, **ENVS[name])] * 2)
    try:
        return run(plain, NUM_STEPS)
    finally:
        plain.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("name", list(ENVS))
def test_a_real_env_is_as_over_gymnasium(name: str, backend: str) -> None:
    with rookery.make_vec(name, 2, env_kwargs=ENVS[name], **BACKENDS[backend].options) as venv:
        assert_same(run(venv, NUM_STEPS), _expected(name))
