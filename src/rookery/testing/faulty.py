"""Faulty: an env that fails on request, in the ways that real envs fail."""

from __future__ import annotations

import ctypes
import enum
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

_LONG_S = 1_000_000


class Fault(enum.IntEnum):
    """Faults that a step can be asked for, by its action."""

    RAISE = -1
    KILL = -2
    EXIT = -3
    PAUSE = -4  # for 0.4 s, then continue
    RAISE_ODD = -5
    SEGFAULT = -6
    SYSTEM_EXIT = -7
    WRONG_SHAPE = -8
    HANG = -9  # in Python
    HANG_NATIVE = -10  # in native code that holds the interpreter's lock
    GROW = -11  # by 64 MiB that are never freed
    WRONG_DTYPE = -12
    NOT_A_NUMBER = -13
    END = -14  # the episode terminates
    TRUNCATE = -15  # the episode is truncated
    NO_TUPLE = -16  # step does not return a tuple of five
    NO_REWARD = -17  # the reward is not a number


class OddError(Exception):
    """An exception that cannot be built from a message alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Faulty(gym.Env[Any, Any]):
    """Counts its steps; a negative action requests a :class:`Fault`.

    The observation is float32 ``[2]``: steps since the reset, and the last seed.

    Args:
        fail: the call that raises a ValueError: ``"make"``, ``"reset"``, ``"close"`` or none.
        render_mode: None or ``"rgb_array"``.
    """

    observation_space: Any = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(100, start=-50)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}

    def __init__(self, fail: str = "", render_mode: str | None = None) -> None:
        self.fail = fail
        self.render_mode = render_mode
        self.label = "plain"
        self.count = 0
        self.seed = 0.0
        self._leaked: list[bytearray] = []
        self._fail_if_asked("make")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Set the count to 0; ``options={"fault": fault}`` requests a fault."""
        super().reset(seed=seed)
        self._fail_if_asked("reset")
        if options and "fault" in options:
            self._fail(options["fault"])
        self.count = 0
        self.seed = self.seed if seed is None else float(seed)
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        """Increase the count, or fail as requested."""
        self.count += 1
        fault = int(action)
        obs = self._obs()
        reward: Any = 1.0
        if fault == Fault.WRONG_SHAPE:
            obs = np.zeros(3, np.float32)
        elif fault == Fault.WRONG_DTYPE:
            obs = np.array(["a", "b"])
        elif fault == Fault.NOT_A_NUMBER:
            obs = obs * np.float32(np.nan)
        elif fault == Fault.NO_TUPLE:
            return [obs]
        elif fault == Fault.NO_REWARD:
            reward = "a lot"
        elif fault < 0 and fault not in (Fault.END, Fault.TRUNCATE):
            self._fail(fault)
        return obs, reward, fault == Fault.END, fault == Fault.TRUNCATE, {}

    def render(self) -> Any:
        """Return a small image filled with the count."""
        return np.full((2, 2, 3), self.count, np.uint8)

    def close(self) -> None:
        """Close, or fail as requested."""
        self._fail_if_asked("close")

    def double(self, number: int) -> int:
        """Return twice the number."""
        return 2 * number

    def _obs(self) -> Any:
        return np.array([self.count, self.seed], np.float32)

    def _fail_if_asked(self, where: str) -> None:
        if self.fail == where:
            raise ValueError(f"no {where} today")

    def _fail(self, fault: int) -> None:
        actions: dict[int, Callable[[], Any]] = {
            Fault.RAISE: _raise_key_error,
            Fault.KILL: _kill_this_process,
            Fault.EXIT: lambda: os._exit(3),
            Fault.PAUSE: lambda: time.sleep(0.4),
            Fault.RAISE_ODD: _raise_odd,
            Fault.SEGFAULT: lambda: ctypes.string_at(0),
            Fault.SYSTEM_EXIT: lambda: sys.exit("bye"),
            Fault.HANG: _loop_forever,
            Fault.HANG_NATIVE: _hang_in_native_code,
            Fault.GROW: lambda: self._leaked.append(bytearray(os.urandom(1)) * 2**26),
        }
        actions[fault]()


def _kill_this_process() -> None:
    if sys.platform == "win32":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def _hang_in_native_code() -> None:
    if sys.platform == "win32":
        ctypes.PyDLL("kernel32").Sleep(_LONG_S * 1000)
    else:
        ctypes.PyDLL(None).sleep(_LONG_S)


def _raise_key_error() -> None:
    raise KeyError("lost key")


def _raise_odd() -> None:
    raise OddError(7, "odd")


def _loop_forever() -> None:
    while True:
        pass
