"""Small environments to train on."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Match(gym.Env[Any, Any]):
    """Reward for answering the number shown; observations are a Dict, episodes last ten steps."""

    def __init__(self, action_space: spaces.Space[Any] | None = None, scale: float = 1.0) -> None:
        self.observation_space = spaces.Dict(
            shown=spaces.Discrete(2), noise=spaces.Box(-1, 1, (2,))
        )
        self.action_space = action_space or spaces.Discrete(2)
        self._scale = scale
        self._shown = 0
        self._count = 0

    def _obs(self) -> dict[str, Any]:
        self._shown = int(self.np_random.integers(2))
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"shown": np.int64(self._shown), "noise": noise}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return self._obs(), {}

    def step(self, action):
        self._count += 1
        answer = float(np.mean(np.asarray(action, np.float64)))
        reward = self._scale * (1.0 - abs(answer - self._shown))
        return self._obs(), reward, False, self._count == 10, {}


class Wide(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that changes nothing."""


class Uneven(gym.Env[Any, Any]):
    """Each env has its own episode length and return, so that a biased count shows."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._length = 0
        self._count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        # Half of all episodes are short and bad, half long and good.
        self._length = 1 if self.np_random.random() < 0.5 else 40
        self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._count += 1
        return np.zeros(1, np.float32), 1.0, self._count == self._length, False, {}


class SignalAt(gym.Wrapper[Any, Any, Any, Any]):
    """Sends this process a signal at one step of the env, while it is armed."""

    signals: ClassVar[dict[int, int]] = {}  # step -> signal

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.count = 0

    def step(self, action):
        self.count += 1
        number = self.signals.pop(self.count, None)
        if number is not None:
            os.kill(os.getpid(), number)
        return self.env.step(action)


class Unpicklable(gym.Wrapper[Any, Any, Any, Any]):
    """Holds what cannot be pickled."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.lock = threading.Lock()


class Corridor(gym.Env[Any, Any]):
    """Counts down in discrete steps; its state is asked for and given, never pickled."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.place = 0.0
        self.lock = threading.Lock()

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place, "rng": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place = state["place"]
        self.np_random.bit_generator.state = state["rng"]

    def _obs(self) -> Any:
        return np.array([self.place, self.np_random.uniform(-1, 1)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return self._obs(), {}

    def step(self, action):
        self.place += 0.1 if action else -0.1
        return self._obs(), self.place, abs(self.place) > 0.95, False, {}


class Recall(gym.Env[Any, Any]):
    """Shows a cue once and asks for it some steps later: without memory, half of the answers."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, delay: int = 4) -> None:
        self._delay = delay
        self._cue = 0
        self._count = 0

    def _obs(self) -> Any:
        cue = 2.0 * self._cue - 1.0 if self._count == 0 else 0.0
        return np.array([cue, self._count == self._delay], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._cue, self._count = int(self.np_random.integers(2)), 0
        return self._obs(), {}

    def step(self, action):
        asked = self._count == self._delay
        self._count += 1
        return self._obs(), float(asked and action == self._cue), asked, False, {}
