"""Synthetic envs with a given step time, which either compute or wait."""

from __future__ import annotations

import functools
import time
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.bench.contenders import BenchSubject
from rookery.env.recipe import EnvRecipe

COMPUTE, WAIT = "compute", "wait"
_CALIBRATION = 20_000  # turns of the loop
_TRIES = 5


class _Idle(gym.Env[Any, Any]):
    """An endless env with four constant observations and two actions."""

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
        """Spend the time of a step."""
        raise NotImplementedError


class Computing(_Idle):
    """An env with a fixed amount of work per step, which slows down on a shared core.

    Args:
        turns: number of iterations of a Python loop per step.
    """

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._turns = turns

    def spend(self) -> None:
        work(self._turns)


class Waiting(_Idle):
    """An env that sleeps in every step, like one that waits for a server.

    Args:
        seconds: duration of the sleep.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def spend(self) -> None:
        time.sleep(self._seconds)


def work(turns: int) -> int:
    """Run a Python loop with a number of iterations."""
    total = 0
    for i in range(turns):
        total ^= i * i
    return total


@functools.cache
def turns_per_second() -> float:
    """Return the iterations of `work` per second, as the best of several tries.

    Results do not depend on its accuracy, as step times are measured.
    """
    times = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        work(_CALIBRATION)
        times.append(time.perf_counter() - start)
    return _CALIBRATION / min(times)


def synthetic(kind: str, step_s: float) -> BenchSubject:
    """Return an env whose step computes or waits for about ``step_s`` seconds."""
    if kind == WAIT:
        recipe = EnvRecipe(Waiting, {"seconds": step_s})
    else:
        recipe = EnvRecipe(Computing, {"turns": max(round(step_s * turns_per_second()), 1)})
    return BenchSubject(f"{kind} {step_s:g} s", recipe)
