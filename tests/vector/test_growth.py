"""Making, closing and stepping again and again does not grow the process."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from backends import BACKENDS, VARIANTS

import rookery

linux_only = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
_MB = 2**20


class Chatty(gym.Env[Any, Any]):
    """A megabyte of observation, infos of every kind, and episodes of five steps."""

    observation_space = gym.spaces.Dict(
        image=gym.spaces.Box(0, 255, (1024, 1024), np.uint8), text=gym.spaces.Text(100)
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        info = {"count": self._steps, "array": np.zeros(50), "free": ["x" * self._steps]}
        return self._obs(), 1.0, self._steps == 5, False, info

    def _obs(self) -> Any:
        return {"image": np.zeros((1024, 1024), np.uint8), "text": "y" * self._steps}


def _held() -> tuple[int, int, int]:
    """Open descriptors, mappings, and resident megabytes of this process."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().count("\n")
    return len(os.listdir("/proc/self/fd")), maps, psutil.Process().memory_info().rss // _MB


# Of one that is spawned, which takes long, more than descriptors shows with --whole only.
LIVES = [*((name, 10) for name in (*BACKENDS, "fork-2")), ("spawn-1", 3)]


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize(
    ("backend", "num_lives"), [*LIVES, pytest.param("spawn-1", 10, marks=pytest.mark.whole)]
)
def test_many_vector_envs_one_after_the_other_leave_nothing(backend: str, num_lives: int) -> None:
    def live() -> None:
        with rookery.make_vec(Chatty, 4, **VARIANTS[backend].options) as venv:
            venv.reset(seed=0)
            for _ in range(6):
                venv.step(np.zeros(4, int))

    for _ in range(2):
        live()
    descriptors, maps, memory = _held()
    for _ in range(num_lives):
        live()
    after = _held()
    assert after[0] == descriptors
    assert after[1] <= maps + 8  # the allocator's own come and go
    assert after[2] <= memory + 25  # one buffer of four observations each would be 40


@pytest.mark.parametrize("how", ["step", "recv"])
@pytest.mark.parametrize("copy", [True, False], ids=["copies", "views"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_many_steps_of_one_vector_env_need_no_more_memory(
    backend: str, copy: bool, how: str
) -> None:
    with rookery.make_vec(Chatty, 4, copy=copy, **BACKENDS[backend].options) as venv:
        processes = [psutil.Process(pid) for pid in (os.getpid(), *venv.pids)]

        def run(num_steps: int) -> list[int]:
            venv.reset(seed=0)
            for _ in range(num_steps):
                if how == "step":
                    venv.step(np.zeros(4, int))
                else:
                    venv.send(np.zeros(4, int))
                    venv.recv(min_envs=4)
            gc.collect()
            return [process.memory_info().rss // _MB for process in processes]

        before = run(50)
        after = run(200)
    assert all(new <= old + 10 for new, old in zip(after, before, strict=True)), (before, after)


class Echoes(gym.Env[Any, Any]):
    """Observes how many numbers its action had."""

    observation_space = gym.spaces.Box(0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Sequence(gym.spaces.Discrete(9))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return np.array([float(len(action))]), 0.0, False, False, {}


@pytest.mark.parametrize("way", ["step", "send"])
def test_actions_may_be_of_any_length(way: str) -> None:
    with rookery.make_vec(Echoes, 2, "process", num_workers=2) as venv:
        venv.reset(seed=0)
        for length in (1, 5000, 3, 200_000):
            actions = ((1,) * length, (2,) * (length + 1))
            if way == "step":
                counts = venv.step(actions)[0][:, 0].tolist()
            else:
                venv.send(actions)
                obs, *_, env_ids = venv.recv(min_envs=2)
                counts = obs[np.argsort(env_ids), 0].tolist()
            assert counts == [length, length + 1]
