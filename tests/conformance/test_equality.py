"""Every carrier returns what Gymnasium's SyncVectorEnv returns, bit for bit."""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from trajectories import NUM_ENVS, SOURCES, assert_same, env_fn, run

import rookery

NUM_STEPS = 200
NUM_STEPS_OF = {"Free": 50}  # its spaces take long to sample from

CARRIERS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    **{
        f"{method}-{workers}": {
            "backend": "process",
            "num_workers": workers,
            "start_method": method,
        }
        for method in ("forkserver", "spawn", "fork")
        for workers in (1, 2, 3)
    },
    "caller-steps": {"backend": "process", "num_workers": 1, "caller_steps": True},
    "caller-steps-2": {"backend": "process", "num_workers": 2, "caller_steps": True},
    "isolated": {"isolate": True},
    "auto": {"backend": "auto"},
}


class Copies(gym.Wrapper[Any, Any, Any, Any]):
    """Returns observations that never change.

    Of an env that draws into one buffer, SyncVectorEnv in the same-step mode returns as the final
    observation what the reset has drawn over it; rookery returns the final one.
    """

    def reset(self, **kwargs: Any) -> Any:
        return deepcopy(super().reset(**kwargs))

    def step(self, action: Any) -> Any:
        return deepcopy(super().step(action))


@functools.cache
def reference(name: str, mode: AutoresetMode) -> list[Any]:
    venv = SyncVectorEnv([lambda: Copies(env_fn(name)())] * NUM_ENVS, autoreset_mode=mode)
    try:
        return run(venv, NUM_STEPS_OF.get(name, NUM_STEPS))
    finally:
        venv.close()


@pytest.mark.parametrize("copy", [True, False], ids=["copies", "views"])
@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize("carrier", list(CARRIERS))
@pytest.mark.parametrize("name", list(SOURCES))
def test_a_carrier_equals_gymnasiums_sync_vector_env(
    name: str, carrier: str, mode: AutoresetMode, copy: bool
) -> None:
    with rookery.make_vec(
        SOURCES[name], NUM_ENVS, autoreset_mode=mode, copy=copy, **CARRIERS[carrier]
    ) as venv:
        actual = run(venv, NUM_STEPS_OF.get(name, NUM_STEPS))
    assert_same(actual, reference(name, mode))
