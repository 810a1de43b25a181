"""Atari games with the results of `atari.for_training`, preprocessed by ALE in ALE's threads.

A batch of ALE steps all its games or none, and starts an episode only with a new game. But after a
lost life the game continues, and buttons must be pressed first. Therefore every game has its own
batch here, and buttons are pressed while other games step. Results are bit for bit those of the
wrappers of single envs.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from rookery.env.wrappers.atari import GAME_LENGTH, GAME_RETURN, opening, sign
from rookery.errors import ConfigError

Array = npt.NDArray[Any]
# Generators that yield whenever they would wait for the thread of their game.
Turn = Generator[None, None, None]
Playing = Generator[None, None, Array]  # returns a frame, uint8 [84, 84]

_NOOP = 0
_PREPROCESSING = {
    "img_height": 84,
    "img_width": 84,
    "stack_num": 1,
    "noop_max": 31,  # ALE draws fewer than this
    "use_fire_reset": False,
    "reward_clipping": False,
}
# Defaults of single envs. Those of batches are 0 and 108 000; a limit is required there.
_DEFAULTS = {"repeat_action_probability": 0.25, "max_num_frames_per_episode": None}
_KNOWN: dict[str, Any] = {
    "game": str,
    "repeat_action_probability": (int, float),
    "full_action_space": bool,
    "max_num_frames_per_episode": int,
}
# Settings of the preprocessing; `allowed_kwargs` of the family limits their values.
_SEEN_ALIKE = {"frameskip", "obs_type", "continuous", "sound_obs"}


class AtariGames(gym.vector.VectorEnv[Array, Array, Array]):
    """Games for training: a lost life ends an episode, and rewards are clipped to their sign.

    Observations are uint8 ``[num_envs, frame_stack, 84, 84]``, valid until the next step.
    ``info["final_info"]`` has `GAME_RETURN` and `GAME_LENGTH` of games that are over.

    Args:
        num_envs: number of games.
        game: ALE's name of the game, such as ``"pong"``.
        frame_stack: number of frames in an observation.
        num_threads: number of games that step at the same time; None means all. One more game
            receives its action in advance, so that no CPU is idle while a result is read.
        **options: settings that `options` returned.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int,
        game: str,
        frame_stack: int = 4,
        num_threads: int | None = None,
        **options: Any,
    ) -> None:
        self.num_envs, self._num_threads = num_envs, num_threads or num_envs
        self._options = {**_PREPROCESSING, "game": game, **options}
        self._obs = np.zeros((num_envs, frame_stack, 84, 84), np.uint8)
        self._final_obs = np.zeros_like(self._obs)
        self._games = self._begun()
        self.single_observation_space = Box(0, 255, self._obs.shape[1:], np.uint8)
        self.single_action_space = Discrete(self._games[0].num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        """Start new games: all, or those of ``options["reset_mask"]``."""
        if isinstance(seed, int):
            seed = range(seed, seed + self.num_envs)
        seeds = [None] * self.num_envs if seed is None else list(seed)
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        self._games = self._games or self._begun()
        chosen = [(self._games[i], seeds[i]) for i in np.flatnonzero(mask)]
        # With a seed ALE loads the game anew, which takes as long as hundreds of steps.
        with ThreadPoolExecutor(self._num_threads) as pool:
            list(pool.map(lambda pair: pair[0].restart(pair[1]), chosen))
        self._play(game.open() for game, _ in chosen)
        return self._obs, {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Take an action in every game.

        Raises:
            ValueError: an action is outside the game's action space. ALE would never return.
        """
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise ValueError(f"actions must be in {self.action_space}, but are {actions.tolist()}")
        if not self._games:
            raise gym.error.ResetNeeded("a step was cut short; reset all games")
        games = self._games
        self._play(game.step(action) for game, action in zip(games, actions, strict=True))
        terminated = np.array([game.terminated for game in games])
        truncated = np.array([game.truncated for game in games])
        ended = terminated | truncated
        info = self._final(ended) if ended.any() else {}
        return self._obs, np.array([game.reward for game in games]), terminated, truncated, info

    def close(self, **kwargs: Any) -> None:
        """End the games' threads."""
        self._games = []

    @staticmethod
    def options(spec: EnvSpec, env_kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a batch that correspond to a single env's arguments.

        Args:
            spec: spec of the single env.
            env_kwargs: arguments of the single env in addition to those of the spec.

        Raises:
            ConfigError: ALE's batches do not support this env. The message says why.
        """
        if spec.entry_point != "ale_py.env:AtariEnv" or spec.max_episode_steps:
            raise ConfigError("it is another env than ALE's batches have")
        if not _has_batches():
            raise ConfigError(
                "ale_py 0.11.1 is the first with such batches (pip install -U ale-py)"
            )
        kwargs = {**_DEFAULTS, **spec.kwargs, **env_kwargs}
        unknown = sorted(kwargs.keys() - _KNOWN.keys() - _SEEN_ALIKE)
        if unknown:
            raise ConfigError(f"ALE's batches do not take {', '.join(unknown)} of its env_kwargs")
        known = {name: kwargs[name] for name in kwargs.keys() & _KNOWN.keys()}
        for name, value in known.items():
            kind = _KNOWN[name]
            if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
                raise ConfigError(f"ALE's batches take no {name}={value!r}")
        return known

    def _begun(self) -> list[_Game]:
        rows = zip(self._obs, self._final_obs, strict=True)
        return [_Game(self._options, seen, final) for seen, final in rows]

    def _play(self, turns: Iterable[Turn]) -> None:
        """Play all turns, at most ``num_threads`` at a time."""
        under_way: deque[Turn] = deque()
        try:
            for turn in turns:
                _go_on(turn, under_way)
                while len(under_way) > self._num_threads:
                    _go_on(under_way.popleft(), under_way)
            while under_way:
                _go_on(under_way.popleft(), under_way)
        except BaseException:
            self._games = []  # some games have results that will not be read
            raise

    def _final(self, ended: Array) -> dict[str, Any]:
        """Return the infos of finished episodes and games."""
        are_reported = np.array([game.reported is not None for game in self._games])
        returns, lengths = zip(*(game.reported or (0.0, 0) for game in self._games), strict=True)
        final_info = {
            GAME_RETURN: np.array(returns),
            f"_{GAME_RETURN}": are_reported,
            GAME_LENGTH: np.array(lengths),
            f"_{GAME_LENGTH}": are_reported,
        }
        return {
            "final_obs": self._final_obs,
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended,
        }


def _has_batches() -> bool:
    """Return True if ale_py has batches with an ``autoreset_mode``."""
    try:
        from ale_py.vector_env import AtariVectorEnv
    except ImportError:
        return False
    return "autoreset_mode" in inspect.signature(AtariVectorEnv).parameters


def _go_on(turn: Turn, under_way: deque[Turn]) -> None:
    """Continue a turn until it ends, or until it waits and is added to ``under_way``."""
    if next(turn, StopIteration) is None:
        under_way.append(turn)


class _Game:
    """A game played by a thread of ALE, with the rules of `atari.Lives`.

    Args:
        options: arguments of ALE's ``AtariVectorEnv``.
        seen: uint8 ``[frame_stack, 84, 84]``, receives the observation.
        final: uint8 ``[frame_stack, 84, 84]``, receives the last observation of an episode.

    Attributes:
        num_actions: number of actions.
        reward: clipped reward of the last step.
        terminated: True if a life or the game was lost.
        truncated: True if the game was cut off at its limit of frames.
        reported: return with unclipped rewards and number of steps of a finished game, or None. A
            game that ends while the next life is started is reported with the next episode.
    """

    def __init__(self, options: dict[str, Any], seen: Array, final: Array) -> None:
        from ale_py.vector_env import AtariVectorEnv

        # In this mode the step after the end of a game starts a new one.
        mode = AutoresetMode.NEXT_STEP
        self._env = AtariVectorEnv(num_envs=1, num_threads=1, autoreset_mode=mode, **options)
        self._opening = opening([action.name for action in self._env.ale.get_action_set()])
        self._seen, self._final = seen, final
        self.num_actions = len(self._env.ale.get_action_set())
        self.reward, self.terminated, self.truncated = 0.0, False, False
        self.reported: tuple[float, int] | None = None
        self._unreported: list[tuple[float, int]] = []  # games that have ended, the oldest first
        self._lives, self._return, self._length = 0, 0.0, 0

    def restart(self, seed: int | None) -> None:
        """Start a new game and wait for it. `open` must follow."""
        obs, info = self._env.reset(seed=seed)
        if seed is not None:  # what follows depends on the seed alone
            self._unreported.clear()
        self._seen[:] = obs[0, 0]
        self._return, self._length, self._lives = 0.0, 0, int(info["lives"][0])

    def open(self) -> Turn:
        """Press the buttons that start a new game."""
        self._seen[:] = yield from self._opened(self._seen[-1])

    def step(self, action: int) -> Turn:
        """Take an action, and start the next episode if this one ends."""
        lives = self._lives
        frame, reward, terminated, self.truncated = yield from self._act(action)
        self._seen[:-1] = self._seen[1:]
        self._seen[-1] = frame
        is_over = terminated or self.truncated
        is_lost = 0 < self._lives < lives and not is_over
        self.reward, self.terminated, self.reported = sign(reward), terminated or is_lost, None
        if is_over:
            self._unreported.append((self._return, self._length))
        if is_over or is_lost:
            self.reported = self._unreported.pop(0) if self._unreported else None
            self._final[:] = self._seen
            self._seen[:] = yield from self._next_episode(is_lost)

    def _next_episode(self, goes_on: bool) -> Playing:
        """Begin the next life, or a new game."""
        if goes_on:
            frame = yield from self._pressed((_NOOP, *self._opening))
            if frame is not None:
                return frame
            self._unreported.append((self._return, self._length))
        return (yield from self._opened((yield from self._new_game())))

    def _opened(self, frame: Array) -> Playing:
        """Press the buttons that start a game; ``frame`` is its first frame."""
        pressed = (yield from self._pressed(self._opening)) if self._opening else frame
        return (yield from self._new_game()) if pressed is None else pressed

    def _new_game(self) -> Playing:
        """Start a new game after the end of one."""
        frame, *_ = yield from self._act(_NOOP)
        self._return, self._length = 0.0, 0
        return frame

    def _pressed(self, actions: Iterable[int]) -> Generator[None, None, Array | None]:
        """Take some actions. Return the last frame, or None if the game is over."""
        for action in actions:
            frame, _, terminated, truncated = yield from self._act(action)
            if terminated or truncated:
                return None
        return frame

    def _act(self, action: int) -> Generator[None, None, tuple[Array, float, bool, bool]]:
        self._env.send(np.array([action]))
        yield
        obs, reward, terminated, truncated, info = self._env.recv()
        self._return += float(reward[0])
        self._length += 1
        self._lives = int(info["lives"][0])
        return obs[0, 0], float(reward[0]), bool(terminated[0]), bool(truncated[0])
