"""Envs that each lack one thing that parallel running needs."""

from __future__ import annotations

import random
import time
from typing import Any

import gymnasium as gym
import numpy as np


class Good(gym.Env[Any, Any]):
    """Nothing is wrong with it."""

    observation_space: Any = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space: Any = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.obs(), 1.0, self.steps == 50, False, {}

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class NumpysStream(Good):
    def obs(self) -> Any:
        return np.random.uniform(-1, 1, 2).astype(np.float32)  # noqa: NPY002


class PythonsStream(Good):
    def obs(self) -> Any:
        return np.full(2, random.random(), np.float32)


class SeedsTheGlobalStream(NumpysStream):
    """Reproducible alone, and not beside another."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            np.random.seed(seed)  # noqa: NPY002
        return super().reset(seed=seed, options=options)


class IgnoresItsSeed(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=None, options=options)


class RemembersTheLastEpisode(Good):
    played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.played += 1
        return super().reset(seed=seed, options=options)

    def obs(self) -> Any:
        return super().obs() + np.float32(min(self.played, 5))


class NotANumber(Good):
    def obs(self) -> Any:
        return super().obs() * np.float32(np.nan if self.steps == 3 else 1)


class RewardIsNan(Good):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return (obs, np.nan, *rest)


class WrongDtype(Good):
    def obs(self) -> Any:
        return super().obs().astype(np.float64)


class WrongShape(Good):
    def obs(self) -> Any:
        return super().obs()[:1]


class OutOfItsSpace(Good):
    def obs(self) -> Any:
        return super().obs() + np.float32(20)


class OldStep(Good):
    """As before Gymnasium: four values."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class OldReset(Good):
    """As before Gymnasium: no info."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class InfoIsNone(Good):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], None)


class RewardIsText(Good):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return (obs, "a lot", *rest)


class FlagIsText(Good):
    def step(self, action: Any) -> Any:
        obs, reward, _, *rest = super().step(action)
        return (obs, reward, "no", *rest)


class NoSpaces(Good):
    observation_space = None


class RaisesInStep(Good):
    def step(self, action: Any) -> Any:
        raise KeyError("lost key")


class RaisesWhenBuilt(Good):
    def __init__(self) -> None:
        raise OSError("no such simulator")


class EndsItsProcess(Good):
    def step(self, action: Any) -> Any:
        import os

        os._exit(3)


class EndsItsProcessWell(Good):
    def step(self, action: Any) -> Any:
        import os

        os._exit(0)


class EndsAllWhenBuiltTwice(Good):
    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        if type(self).built == 2:
            raise SystemExit(0)


class TellsALockAtTheEnd(Good):
    def step(self, action: Any) -> Any:
        import threading

        *result, info = super().step(action)
        return (*result, {"lock": threading.Lock()} if result[2] else info)


class OneAtATime(Good):
    """Only one may exist in a process."""

    exists = False

    def __init__(self) -> None:
        if OneAtATime.exists:
            raise RuntimeError("the simulator is in use")
        OneAtATime.exists = True


class Singleton(Good):
    """The class returns the same env again."""

    env: Any = None

    def __new__(cls) -> Any:
        if Singleton.env is None:
            Singleton.env = super().__new__(cls)
        return Singleton.env


class HangsInStep(Good):
    def step(self, action: Any) -> Any:
        while True:
            time.sleep(1)


class HangsInReset(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        while True:
            time.sleep(1)


class HangsWhenBuilt(Good):
    def __init__(self) -> None:
        while True:
            time.sleep(1)
