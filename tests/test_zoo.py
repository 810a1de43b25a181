"""scripts/outside --zoo tells envs that are equal from those that are not, and says why."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

_FILE = Path(__file__).parent / "outside" / "zoo" / "compare.py"
_SPEC = importlib.util.spec_from_file_location("zoo_compare", _FILE)
assert _SPEC is not None and _SPEC.loader is not None
zoo = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(zoo)


class Shows(gym.Env[Any, Any]):
    """Shows a number that ``show`` chooses; an episode has three steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.float64(self.show()), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = self.np_random.random() + action
        return np.float64(self.show()), reward, self.steps == 3, False, {"steps": self.steps}

    def show(self) -> float:
        return 0.0


class ShowsChance(Shows):
    def show(self) -> float:
        return np.random.default_rng().random()


class ShowsItsProcess(Shows):
    def show(self) -> float:
        return os.getpid()


class ShowsItsThread(Shows):
    def show(self) -> float:
        return float(threading.current_thread() is threading.main_thread())


class HasManyRewards(Shows):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, np.zeros(2), *rest


def found(env: str) -> dict[str, set[str]]:
    """The beginnings of the outcomes, by backend."""
    case = {"factory": f"{__name__}:{env}", "steps": 8}
    outcomes = zoo.compare(case)["outcomes"]
    backends: dict[str, set[str]] = {}
    for key, outcome in outcomes.items():
        mode, backend = key.split("/")
        assert mode in ("next_step", "same_step", "disabled")
        backends.setdefault(backend, set()).add(outcome.partition(":")[0])
    assert list(backends) == ["serial", "process", "thread"] and len(outcomes) == 9
    return backends


@pytest.mark.parametrize(
    ("env", "serial", "process", "thread"),
    [
        ("Shows", "equal", "equal", "equal"),
        ("ShowsChance", *["not deterministic"] * 3),
        ("ShowsItsProcess", "equal", "DIFFERENT", "equal"),
        ("ShowsItsThread", "equal", "equal", "not thread-safe"),
        ("HasManyRewards", *["refused by both"] * 3),
    ],
)
def test_what_the_zoo_finds(env: str, serial: str, process: str, thread: str) -> None:
    expected = {"serial": {serial}, "process": {process}, "thread": {thread}}
    assert found(env) == expected


def test_the_zoo_counts_episodes_that_crossed_their_end() -> None:
    case = {"factory": f"{__name__}:Shows", "steps": 9, "num_envs": 2}
    result = zoo.compare(case)
    assert result["steps"] == 9 and result["episodes"] == 6  # in the same-step mode, 2 envs, 3 each
