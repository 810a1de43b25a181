"""Envs that are scripted by the actions and arguments of a test."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class Cue(enum.IntEnum):
    """An action of :class:`Scripted`, which selects the behaviour of the step."""

    GO_ON = 0
    TERMINATE = 1
    TRUNCATE = 2
    END_BOTH_WAYS = 3
    RAISE = 4
    WAIT = 5  # until the file ``gate`` exists


class Lost(Exception):
    """An exception of the env's own."""


class Scripted(gym.Env[Any, Any]):
    """Counts its steps and ends, fails or waits as its actions say.

    The observation is float32 ``[2]``: steps since the reset, and how many resets there were. The
    reward is the steps since the reset. Infos say the same, as ``count`` after steps and ``resets``
    after resets.

    Args:
        gate: the file that ``Cue.WAIT`` waits for.
        high: bound of the observation space.
        num_actions: size of the action space.
        render_mode: ``"rgb_array"`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        gate: Path | None = None,
        high: float = 1000.0,
        num_actions: int = 6,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = gym.spaces.Box(0, high, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(num_actions)
        self.render_mode = render_mode
        self.label = "inner"
        self.steps = 0
        self.resets = 0
        self.seeds: list[int | None] = []
        self.options: list[Any] = []
        self._gate = gate

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        self.resets += 1
        self.seeds.append(seed)
        self.options.append(options)
        return self._obs(), {"resets": self.resets}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if action == Cue.RAISE:
            raise Lost("the way home")
        while action == Cue.WAIT and self._gate is not None and not self._gate.exists():
            time.sleep(0.001)
        self.steps += 1
        terminated = action in (Cue.TERMINATE, Cue.END_BOTH_WAYS)
        truncated = action in (Cue.TRUNCATE, Cue.END_BOTH_WAYS)
        return self._obs(), float(self.steps), terminated, truncated, {"count": self.steps}

    def render(self) -> Any:
        return np.full((4, 6, 3), self.steps, np.uint8)

    def add(self, a: int, b: int = 0) -> int:
        """A method to be called with arguments."""
        return a + b

    def _obs(self) -> Any:
        return np.array([self.steps, self.resets], np.float32)


class Labelled(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper with an attribute that its env has too, and one that only it has."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.label = "outer"
        self.outer_only = 1

    def whisper(self) -> str:
        return "outer"


class Informer(gym.Env[Any, Any]):
    """Tells the infos that it was given: the first at the reset, the others step by step.

    Args:
        infos: one for the reset, then one for each step; the last one is repeated.
        ends_at: the step that terminates, if any.
    """

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, infos: Sequence[dict[str, Any]], ends_at: int | None = None) -> None:
        self._infos = infos
        self._ends_at = ends_at
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), dict(self._infos[0])

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        info = self._infos[min(self._steps, len(self._infos) - 1)]
        return np.zeros(1, np.float32), 0.0, self._steps == self._ends_at, False, dict(info)


class Typed(gym.Env[Any, Any]):
    """Returns a reward and flags of the types that it is given.

    Args:
        reward: what every step returns as its reward.
        flag: makes a flag of a bool.
    """

    observation_space = gym.spaces.Discrete(5, start=-2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reward: Any, flag: Callable[[bool], Any] = bool) -> None:
        self._reward = reward
        self._flag = flag

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return -2, {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return 2, self._reward, self._flag(action == 1), self._flag(False), {}


class Echo(gym.Env[Any, Any]):
    """Notes dtype and shape of the latest action, and then overwrites it.

    Args:
        action_space: the space of its actions.
    """

    observation_space = gym.spaces.Discrete(2)

    def __init__(self, action_space: gym.Space[Any]) -> None:
        self.action_space = action_space
        self.kind: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.kind = _kind_of(action)
        if isinstance(action, np.ndarray):
            action[...] = 0
        return 0, 0.0, False, False, {}


def _kind_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _kind_of(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_kind_of, value))
    return str(value.dtype), value.shape


class Fixed(gym.Env[Any, Any]):
    """Returns the same value as every observation.

    Args:
        observation_space: the declared observation space.
        value: the observation.
    """

    action_space = gym.spaces.Discrete(2)

    def __init__(self, observation_space: gym.Space[Any], value: Any) -> None:
        self.observation_space = observation_space
        self._value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._value, {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._value, 0.0, False, False, {}
