"""Envs of which one knows what a step costs: some compute for so long, others wait."""

from __future__ import annotations

import functools
import time
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.bench.contenders import Subject
from rookery.env.recipe import EnvRecipe

COMPUTE, WAIT = "compute", "wait"
_CALIBRATION = 20_000  # turns of the loop
_TRIES = 5


class _Idle(gym.Env[Any, Any]):
    """Four numbers, two actions, no end, nothing to do."""

    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs, {}

    def step(self, action: int) -> Any:
        self.spend()
        return self._obs, 0.0, False, False, {}

    def spend(self) -> None:
        """Do what a step costs."""
        raise NotImplementedError


class Computing(_Idle):
    """Does the same amount of work in every step, so that a core that is shared makes it slower.

    Args:
        turns: of a loop in Python.
    """

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns

    def spend(self) -> None:
        work(self._turns)


class Waiting(_Idle):
    """Sleeps in every step, as one would that talks to a server; it uses no core.

    Args:
        seconds: of sleep.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def spend(self) -> None:
        time.sleep(self._seconds)


def work(turns: int) -> int:
    """A loop in Python that nobody could leave out."""
    total = 0
    for i in range(turns):
        total ^= i * i
    return total


@functools.cache
def turns_per_second() -> float:
    """How fast a core of this machine works, when nothing else disturbs it: the best of some tries.

    Results do not rest on it: what a step costs is measured.
    """
    times = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work(_CALIBRATION)
        times.append(time.perf_counter() - start)
    return _CALIBRATION / min(times)


def synthetic(kind: str, step_s: float) -> Subject:
    """An env whose step takes about so many seconds, of computing or of waiting."""
    if kind == WAIT:
        recipe = EnvRecipe(Waiting, {"seconds": step_s})
    else:
        recipe = EnvRecipe(Computing, {"turns": max(round(step_s * turns_per_second()), 1)})
    return Subject(f"{kind} {step_s:g} s", recipe)
