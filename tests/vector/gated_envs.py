"""Envs that wait, return large infos, or record their close; and vector envs of every backend."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rookery

WAIT, INTERRUPT = 1, 2  # actions of Gated

NO_HURRY_S = 100_000.0  # whoever waits for such a deadline fails by the time limit of tests


def make(
    kind: str, env: Callable[..., Any], num_envs: int = 2, **options: Any
) -> rookery.VectorEnv:
    """A vector env of some backend: ``"serial"``, ``"thread"`` or ``"process"``; a worker per env.

    Args:
        kind: which.
        env: makes an env.
        num_envs: how many.
        options: of the vector env; ``kwargs`` are given to every env.
    """
    fn = partial(env, **options.pop("kwargs", {}))
    if kind == "serial":
        return rookery.SerialVectorEnv([fn] * num_envs, **options)
    options.setdefault("num_workers", num_envs)
    if kind == "process":
        return rookery.ProcessVectorEnv([fn] * num_envs, **options)
    from rookery.vector.thread import ThreadVectorEnv

    return ThreadVectorEnv([fn] * num_envs, **options)


class Gated(gym.Env[Any, Any]):
    """Counts its steps; some of them wait until a file exists.

    Args:
        folder: has the file ``open`` once nobody is to wait; gets ``closed-i`` of a closed env that
            was last reset with seed i.
        caller: the process that a step with action INTERRUPT interrupts.
    """

    observation_space = gym.spaces.Box(0, 9999, (1,), np.int64)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, folder: str = ".", caller: int = 0) -> None:
        self._folder, self._caller = Path(folder), caller
        self._seed: int | None = None
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed = seed if seed is not None else self._seed
        self.count = 0
        return np.array([0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == INTERRUPT:
            os.kill(self._caller, signal.SIGINT)
        if action in (WAIT, INTERRUPT):
            while not (self._folder / "open").exists():
                time.sleep(0.001)
        self.count += 1
        return np.array([self.count]), 1.0, False, False, {}

    def close(self) -> None:
        if self._folder != Path("."):  # nobody asked for it
            (self._folder / f"closed-{self._seed}").touch()
