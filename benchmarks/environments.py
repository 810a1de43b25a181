"""The environments that are stepped, one maker each; every contender gets the same maker."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

Maker = Callable[[], gymnasium.Env[Any, Any]]


class ImageEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """Four stacked 84x84 frames that cost nothing to make: what remains is moving them."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)
    episode_steps = 1000

    def __init__(self) -> None:
        self._frames = np.arange(4 * 84 * 84, dtype=np.uint8).reshape(4, 84, 84)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._frames, {}

    def step(
        self, action: np.int64
    ) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return self._frames, 0.0, False, self._steps >= self.episode_steps, {}


class UnevenSleepEnv(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """Waits 2 ms on average, exponentially distributed, as a simulator behind a socket would."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    step_s = 0.002

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(
        self, action: np.int64
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        time.sleep(self.np_random.exponential(self.step_s))
        return np.zeros(4, np.float32), 0.0, False, False, {}


class _Stored(gymnasium.Env[Any, np.int64]):
    """Returns observations that were drawn beforehand, in turn; what remains is moving them."""

    action_space = gymnasium.spaces.Discrete(4)
    episode_steps = 200

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.observation_space = space
        space.seed(0)
        self._stored = itertools.cycle([space.sample() for _ in range(64)])
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return next(self._stored), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        return next(self._stored), 0.0, False, self._steps >= self.episode_steps, {}


def _make_sequence() -> gymnasium.Env[Any, np.int64]:
    """As many objects as there happen to be in sight, eight numbers each."""
    return _Stored(gymnasium.spaces.Sequence(gymnasium.spaces.Box(-1, 1, (8,), np.float32)))


def _make_graph() -> gymnasium.Env[Any, np.int64]:
    """A graph of up to ten nodes with eight numbers each, and edges of four kinds."""
    node, edge = gymnasium.spaces.Box(-1, 1, (8,), np.float32), gymnasium.spaces.Discrete(4)
    return _Stored(gymnasium.spaces.Graph(node, edge))


def register_atari() -> None:
    """Register ALE's games with Gymnasium, and silence ALE's messages."""
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _make_atari(game: str) -> gymnasium.Env[Any, Any]:
    """A game as DQN plays it (Mnih et al. 2015): every fourth frame, 84x84 grey, four stacked."""
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    register_atari()
    env = gymnasium.make(game, frameskip=1)
    return FrameStackObservation(AtariPreprocessing(env), 4)


ATARI_GAMES = {"breakout": "ALE/Breakout-v5", "pong": "ALE/Pong-v5"}


def _make_minigrid(env_id: str) -> gymnasium.Env[Any, Any]:
    import minigrid  # noqa: F401  registers its envs

    return gymnasium.make(env_id)


MAKERS: dict[str, Maker] = {
    **{name: functools.partial(_make_atari, game) for name, game in ATARI_GAMES.items()},
    "acrobot": functools.partial(gymnasium.make, "Acrobot-v1"),
    "cartpole": functools.partial(gymnasium.make, "CartPole-v1"),
    "graph": _make_graph,
    "halfcheetah": functools.partial(gymnasium.make, "HalfCheetah-v5"),
    "hopper": functools.partial(gymnasium.make, "Hopper-v5"),
    "image": ImageEnv,
    "lunarlander": functools.partial(gymnasium.make, "LunarLander-v3"),
    "minigrid": functools.partial(_make_minigrid, "MiniGrid-DoorKey-8x8-v0"),
    "sequence": _make_sequence,
    "uneven sleep": UnevenSleepEnv,
}


def draw_actions(env_name: str, num_envs: int, num_batches: int = 1024) -> npt.NDArray[Any]:
    """Draw the same random actions for every contender.

    Returns:
        int64 ``[num_batches, num_envs]``, or float32 ``[num_batches, num_envs, *action]``.
    """
    env = MAKERS[env_name]()
    space = env.action_space
    env.close()
    rng = np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=(num_batches, num_envs))
    assert isinstance(space, gymnasium.spaces.Box)
    size = (num_batches, num_envs, *space.shape)
    return rng.uniform(space.low, space.high, size).astype(np.float32)
