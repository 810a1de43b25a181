"""An env that counts, and fails once at steps or resets that are said beforehand."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

KILL, RAISE, HANG, EXIT = "kill", "raise", "hang", "exit"


class Tally(gym.Env[Any, Any]):
    """Observes its index, the steps of its episode, and its last seed.

    Args:
        index: index of the env.
        folder: folder of files about faults that have happened. Each fault happens only once.
        steps: number of a step in the life of the env -> fault.
        resets: number of a reset -> fault.
        makes: number of the process that builds the env -> fault.
        length: steps of an episode.
        cuts: whether episodes end truncated instead of terminated.
        actions: None for two discrete actions, else the size of a Box.
    """

    def __init__(
        self,
        index: int,
        folder: Path,
        steps: dict[int, str] | None = None,
        resets: dict[int, str] | None = None,
        makes: dict[int, str] | None = None,
        length: int = 5,
        cuts: bool = False,
        actions: int | None = None,
    ) -> None:
        self.observation_space = gym.spaces.Box(-1, np.inf, (3,), np.float64)
        self.action_space: Any = gym.spaces.Discrete(2)
        if actions:
            self.action_space = gym.spaces.Box(-1, 1, (actions,))
        self._index, self._folder, self._length, self._cuts = index, folder, length, cuts
        self._steps, self._resets = steps or {}, resets or {}
        self._stepped = self._reset = self._count = 0
        self._seed = -1
        if makes:
            (folder / f"{index}.process.{os.getpid()}").touch()
            self._fail(makes, "make", len(list(folder.glob(f"{index}.process.*"))))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._reset += 1
        self._seed = self._seed if seed is None else seed
        self._fail(self._resets, "reset", self._reset)
        self._count = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._stepped += 1
        self._fail(self._steps, "step", self._stepped)
        self._count += 1
        ended = self._count == self._length
        return self._obs(), 1.0, ended and not self._cuts, ended and self._cuts, {"number": 7.0}

    def _obs(self) -> Any:
        return np.array([self._index, self._count, self._seed], np.float64)

    def _fail(self, faults: dict[int, str], what: str, number: int) -> None:
        mark = self._folder / f"{self._index}.{what}.{number}"
        if number not in faults or mark.exists():
            return
        mark.touch()
        fault = faults[number]
        if fault == RAISE:
            raise KeyError("lost key")
        if fault == EXIT:
            os._exit(3)
        while fault == HANG:
            time.sleep(3600)
        os.kill(os.getpid(), signal.SIGKILL)
