"""Small deterministic envs that between them use every kind of space, info and number."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from packaging.version import Version

IS_GYMNASIUM_1_3 = Version(gym.__version__) < Version("1.4")  # the lowest that is allowed


class DictEnv(gym.Env[Any, Any]):
    """Nested Dict and Tuple observations, a Box action, infos of every kind, int rewards."""

    observation_space = spaces.Dict(
        {
            "position": spaces.Box(-10, 10, (3,), np.float64),
            "inner": spaces.Dict(
                {
                    "flags": spaces.MultiBinary(4),
                    "level": spaces.Discrete(50, start=-3),
                    "pair": spaces.Tuple(
                        (spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-1, 1, (), np.float32))
                    ),
                }
            ),
        }
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._length = int(self.np_random.integers(2, 9))
        self._steps = 0
        return self._obs(), {"length": self._length, "options": options}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        terminated = np.bool_(self._steps >= self._length)
        info = {
            "steps": self._steps,
            "ratio": self._steps / 7,
            "even": self._steps % 2 == 0,
            "name": f"step {self._steps}",
            "vector": np.full(3, self._steps, np.float32),
            "nested": {"action": np.array(action), "none": None},
        }
        if self._steps == 2:
            info["rare"] = [1, 2]
        return self._obs(), self._steps, terminated, self._steps == 6, info

    def _obs(self) -> dict[str, Any]:
        return {
            "position": self.np_random.uniform(-10, 10, 3),
            "inner": {
                "flags": self.np_random.integers(0, 2, 4, dtype=np.int8),
                "level": int(self.np_random.integers(-3, 47)),
                "pair": (
                    self.np_random.integers(0, 256, (2, 2), dtype=np.uint8),
                    np.float32(self.np_random.uniform(-1, 1)),
                ),
            },
        }


class ImageEnv(gym.Env[Any, Any]):
    """A uint8 image that the env draws into one and the same buffer, a 0-d array as reward."""

    observation_space = spaces.Box(0, 255, (12, 10, 3), np.uint8)
    action_space = spaces.Discrete(4, start=2)

    def __init__(self) -> None:
        self._image = np.zeros((12, 10, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._image[...] = self.np_random.integers(0, 256, self._image.shape, dtype=np.uint8)
        return self._image, {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._image[int(action)] += np.uint8(action)
        ended = self.np_random.random() < 0.1
        return self._image, np.array(0.1 * action, np.float32), ended, False, {}


class MultiDiscreteEnv(gym.Env[Any, Any]):
    """MultiDiscrete both ways; the observation depends on every action so far."""

    observation_space = spaces.MultiDiscrete([7, 5, 3])
    action_space = spaces.MultiDiscrete([3, 4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._sum = int(self.np_random.integers(0, 100))
        return self._obs(), {"start": np.int32(self._sum)}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._sum += int(action[0]) + 3 * int(action[1])
        truncated = self._sum % 11 == 0
        return self._obs(), np.float32(self._sum / 3), False, truncated, {}

    def _obs(self) -> Any:
        return np.array([self._sum % 7, self._sum % 5, self._sum % 3])


class TupleActionEnv(gym.Env[Any, Any]):
    """A Dict of actions, echoed in the observation, which is a plain 0-d Box."""

    observation_space = spaces.Box(-100, 100, (), np.float64)
    action_space = spaces.Dict(
        {
            "move": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float64))),
            "switch": spaces.MultiBinary(2),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        direction, force = action["move"]
        obs = float(direction) + float(force.sum()) + float(action["switch"].sum())
        return obs, obs, self.np_random.random() < 0.1, False, {}


@dataclass
class Card:
    """A value other than an array."""

    suit: str
    rank: int


class CardSpace(spaces.Space[Card]):
    """A space that Gymnasium does not know."""

    def sample(self, mask: Any = None, probability: Any = None) -> Card:
        return Card(
            str(self.np_random.choice(["hearts", "spades"])), int(self.np_random.integers(13))
        )

    def contains(self, x: Any) -> bool:
        return isinstance(x, Card)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, CardSpace)


class FreeEnv(gym.Env[Any, Any]):
    """Observations and actions without a fixed shape, among others that have one.

    Now and then a value is not built as its space says, and now and then one is very large.
    """

    observation_space = spaces.Dict(
        {
            "array": spaces.Box(-1, 1, (2,), np.float32),
            "card": CardSpace(),
            "choice": spaces.OneOf([spaces.Discrete(4), spaces.Text(9), spaces.Box(0, 1, (2,))]),
            "graph": spaces.Graph(spaces.Box(-1, 1, (3,)), spaces.Discrete(5)),
            "half": spaces.Box(-1, 1, (3,), np.float16),
            "nothing": spaces.Box(0, 1, (0, 2)),
            "pair": spaces.Tuple((spaces.Text(20), spaces.Discrete(7))),
            "points": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float64)),
            "records": spaces.Sequence(
                spaces.Dict({"a": spaces.Box(0, 9, (2,)), "b": spaces.Text(5)}),
            ),
            "stack": spaces.Sequence(
                spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))), stack=True
            ),
        }
    )
    action_space = spaces.Dict(
        {
            "card": CardSpace(),
            "number": spaces.Discrete(3),
            "words": spaces.Sequence(spaces.Text(6)),
        }
    )

    def __init__(self) -> None:
        self.observation_space = deepcopy(self.observation_space)  # its generator is this env's own

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(1000)))
        self._steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        reward = len(str(action["words"])) + action["card"].rank + action["number"]
        info = {"card": action["card"], "words": action["words"], "steps": self._steps}
        return self._obs(), reward, self.np_random.random() < 0.1, self._steps == 15, info

    def _obs(self) -> Any:
        obs = self.observation_space.sample()
        oddity = self.np_random.integers(40)
        if oddity == 0:
            obs["points"] = [1, "two"]
        if oddity == 1:
            obs["pair"] = (f"long {self._steps}" * 700, obs["pair"][1])
        if oddity == 2:
            obs["points"] = tuple(np.ones((3, 2)))
        return obs
