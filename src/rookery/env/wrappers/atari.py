"""The standard preprocessing of Atari games (Mnih et al. 2015).

A step is four frames. The observation is the maximum of the last two, 84x84 and grey. Up to 30
no-ops follow a reset. `for_training` also ends an episode with every lost life and clips rewards to
their sign. `for_evaluation` plays whole games with unclipped rewards. Both return single frames,
which are stacked by another wrapper.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TransformReward

# Keys of the info at the end of a game: its return with unclipped rewards, and its length in steps.
GAME_RETURN, GAME_LENGTH = "game_return", "game_length"

_NOOP = 0
_STICKINESS = "repeat_action_probability"


def for_training(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap a game for training.

    Args:
        env: a game without frame skipping.
    """
    return TransformReward(Lives(_seen(env), end_episodes=True), sign)


def for_evaluation(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap a game for evaluation: whole games with unclipped rewards."""
    return Lives(_seen(env), end_episodes=False)


def opening(meanings: list[str]) -> tuple[int, ...]:
    """Return the actions that start a game or a life, or nothing if the game has no FIRE."""
    return (meanings.index("FIRE"), 2) if "FIRE" in meanings and len(meanings) >= 3 else ()


def sign(reward: SupportsFloat) -> float:
    """Return -1, 0 or 1, the sign of a reward."""
    return float(np.sign(float(reward)))


def _seen(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Wrap a game so that a step is four frames and an observation is uint8 ``[84, 84]``."""
    return AtariPreprocessing(SavedGame(env) if SavedGame.is_possible(env) else env)


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """Detects lost lives and starts the next life.

    If a game waits for FIRE, FIRE and then the third action are pressed after every reset and with
    every new life, as in Stable-Baselines3. The info of a game's last step has `GAME_RETURN` and
    `GAME_LENGTH`. If a game ends while a reset presses buttons, the last step of the next episode
    has them.

    Args:
        env: an Atari game.
        end_episodes: True ends an episode with every lost life. The next reset continues the same
            game, so that all of it is played; a reset with a seed or options starts a new game.
            False plays to the end of the game, and starts the next life within the step that lost
            one.
    """

    def __init__(self, env: gym.Env[Any, Any], end_episodes: bool) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._opening = opening(game.get_action_meanings())
        self._ends_episodes = end_episodes
        self._goes_on = False  # True if the game continues after the end of an episode
        self._lives, self._return, self._length = 0, 0.0, 0
        self._unreported: list[tuple[float, int]] = []  # finished games to report, the oldest first
        self._owed = 0.0  # rewards received while a reset pressed buttons; added to the next step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start the next life or a new game."""
        goes_on = self._goes_on and seed is None and not options
        self._goes_on = False
        if goes_on:
            begun = self._press((_NOOP, *self._opening))
            if begun is not None:
                return begun
            self._unreported.append((self._return, self._length))
        elif seed is not None:  # afterwards everything depends only on the seed
            self._unreported.clear()
        return self._new_game(seed, options)

    def step(self, action: Any) -> Any:
        """Step the game."""
        obs, reward, terminated, truncated, info = self._step(action)
        reward, self._owed = reward + self._owed, 0.0
        lives = self._lives_left()
        is_lost, self._lives = 0 < lives < self._lives, lives
        if is_lost and not (terminated or truncated):
            if self._ends_episodes:
                terminated = self._goes_on = True
            else:
                for press in self._opening:
                    obs, more, terminated, truncated, info = self._step(press)
                    reward += more
                    if terminated or truncated:
                        break
                self._lives = self._lives_left()
        if terminated or truncated:
            if not self._goes_on:
                self._unreported.append((self._return, self._length))
            if self._unreported:
                total, length = self._unreported.pop(0)
                info = {**info, GAME_RETURN: total, GAME_LENGTH: length}
        return obs, reward, terminated, truncated, info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        first = self.env.reset(seed=seed, options=options)
        self._return, self._length, self._owed = 0.0, 0, 0.0
        begun = self._press(self._opening) if self._opening else first
        if begun is None:  # the game ended while buttons were pressed
            begun = self.env.reset()
            self._return, self._length, self._owed = 0.0, 0, 0.0
        self._lives = self._lives_left()
        return begun

    def _press(self, actions: tuple[int, ...]) -> Any:
        """Take some actions. Return the last observation and info, or None if the game is over."""
        for action in actions:
            obs, reward, terminated, truncated, info = self._step(action)
            if terminated or truncated:
                return None
            self._owed += 0.0 if self._ends_episodes else reward
        self._lives = self._lives_left()
        return obs, info

    def _step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return += float(reward)
        self._length += 1
        return obs, float(reward), terminated, truncated, info

    def _lives_left(self) -> int:
        game: Any = self.env.unwrapped
        return int(game.ale.lives())


class SavedGame(gym.Wrapper[Any, Any, Any, Any]):
    """An ALE game with a state that can be saved, so that a run can be resumed during an episode.

    The state consists of the emulator's state, its random numbers, and the state of the wrappers
    below. The emulator does not reveal which action it would repeat. Therefore this wrapper draws
    the sticky actions (Machado et al. 2018), with the env's probability, for every frame.

    Args:
        env: a game in which a step is one frame.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._stickiness = game.ale.getFloat(_STICKINESS)
        self._last: Any = _NOOP
        if self._stickiness:
            game.ale.setFloat(_STICKINESS, 0.0)
            game.load_game()  # the emulator reads the setting here

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start a new game."""
        self._last = _NOOP
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Play a frame with this action or the previous one."""
        game: Any = self.unwrapped
        if not self._stickiness or game.np_random.random() >= self._stickiness:
            self._last = action
        return self.env.step(self._last)

    @staticmethod
    def is_possible(env: gym.Env[Any, Any]) -> bool:
        """Return True if ``env`` is an ALE game."""
        return hasattr(getattr(env.unwrapped, "ale", None), "cloneState")

    def get_state(self) -> dict[str, Any]:
        """Return everything on which the next steps depend."""
        game: Any = self.unwrapped
        return {
            "ale": game.ale.cloneState(include_rng=True),
            "rng": game.np_random.bit_generator.state,
            "last": self._last,
            "wrappers": [
                {name: value for name, value in vars(link).items() if name != "env"}
                for link in self._beneath()
            ],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `get_state` returned."""
        game: Any = self.unwrapped
        self.env.reset()  # the emulator must have loaded a game before it can restore a state
        game.ale.restoreState(state["ale"])
        self._last = state["last"]
        game.np_random.bit_generator.state = state["rng"]
        for link, attributes in zip(self._beneath(), state["wrappers"], strict=True):
            vars(link).update(attributes)

    def _beneath(self) -> list[Any]:
        links, env = [], self.env
        while isinstance(env, gym.Wrapper):
            links.append(env)
            env = env.env
        return links
