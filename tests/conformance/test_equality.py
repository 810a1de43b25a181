"""Every backend returns what Gymnasium's SyncVectorEnv returns, bit for bit."""

from __future__ import annotations

import functools
import os
from typing import Any

import gymnasium as gym
import pytest
from backends import VARIANTS, variants
from copies import Copies
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from trajectories import NUM_ENVS, SOURCES, assert_same, env_fn, run

import rookery

NUM_STEPS = 60  # several episodes
NUM_STEPS_OF = {"Free": 30}  # its spaces take long to sample from


@functools.cache
def reference(name: str, mode: AutoresetMode) -> list[Any]:
    venv = SyncVectorEnv([lambda: Copies(env_fn(name)())] * NUM_ENVS, autoreset_mode=mode)
    try:
        return run(venv, NUM_STEPS_OF.get(name, NUM_STEPS))
    finally:
        venv.close()


def assert_ran_as_asked(venv: rookery.VectorEnv, backend: str) -> None:
    """Check that the envs live where the backend's options, or what "auto" chose, say."""
    asked = VARIANTS[backend].options
    if venv.choice is None:
        assert asked.get("backend") != "auto"
        num_workers = NUM_ENVS if "isolate" in asked else asked.get("num_workers", 0)
        caller_steps = asked.get("caller_steps", not num_workers)
    else:
        assert asked == {"backend": "auto"}
        num_workers, caller_steps = venv.choice.num_workers, venv.choice.caller_steps
        assert (venv.choice.backend == "serial") == (num_workers == 0)
    homes = set(venv.apply(_process_id))
    assert (os.getpid() in homes) == (caller_steps or not num_workers)
    assert homes - {os.getpid()} == set(venv.pids) and len(venv.pids) == num_workers


def _process_id(env: gym.Env[Any, Any]) -> int:
    return os.getpid()


@pytest.mark.parametrize("copy", [True, False], ids=["copies", "views"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("backend", variants())
@pytest.mark.parametrize("name", list(SOURCES))
def test_a_backend_equals_gymnasiums_sync_vector_env(
    name: str, backend: str, mode: AutoresetMode, copy: bool
) -> None:
    with rookery.make_vec(
        SOURCES[name], NUM_ENVS, autoreset_mode=mode, copy=copy, **VARIANTS[backend].options
    ) as venv:
        actual = run(venv, NUM_STEPS_OF.get(name, NUM_STEPS))
        assert_ran_as_asked(venv, backend)
    assert_same(actual, reference(name, mode))
