"""Atari games as agents play them everywhere since Mnih et al. (2015).

Each step is four frames, of which the larger of the last two is seen, 84x84 and grey; up to 30
no-ops follow a reset. `for_training` also ends an episode with every lost life and clips rewards to
their sign; `for_evaluation` plays whole games for the rewards that the game gives. Both return one
frame at a time; frames are stacked outside of them.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, TransformReward

# In the info with which the last episode of a game ends: the game's return, rewards not clipped,
# and its length in steps.
GAME_RETURN, GAME_LENGTH = "game_return", "game_length"

_NOOP = 0
_STICKINESS = "repeat_action_probability"


def for_training(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Preprocess a game to learn from it.

    Args:
        env: a game that skips no frames by itself.
    """
    return TransformReward(Lives(_seen(env), end_episodes=True), sign)


def for_evaluation(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Preprocess a game to see how well it is played: whole games, rewards as they are."""
    return Lives(_seen(env), end_episodes=False)


def opening(meanings: list[str]) -> tuple[int, ...]:
    """The actions that begin a game, or a life, where FIRE is known; none where it is not."""
    return (meanings.index("FIRE"), 2) if "FIRE" in meanings and len(meanings) >= 3 else ()


def sign(reward: SupportsFloat) -> float:
    """-1, 0 or 1."""
    return float(np.sign(float(reward)))


def _seen(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A game whose steps are four frames and whose observations are uint8 ``[84, 84]``."""
    return AtariPreprocessing(SavedGame(env) if SavedGame.is_possible(env) else env)


class Lives(gym.Wrapper[Any, Any, Any, Any]):
    """Knows when a life is lost, and begins the next one.

    A game that waits for FIRE is begun by pressing it, and the third action after it, as
    Stable-Baselines3 does: after every reset, and with the next life. The info of a game's last
    step holds `GAME_RETURN` and `GAME_LENGTH`. A game that ends while a reset presses has no step
    left to tell them; the last step of the next episode does.

    Args:
        env: a game.
        end_episodes: whether an episode ends with a life; the reset after it goes on with the same
            game, so that all of it is seen. A reset with a seed or options begins a new one. False
            plays on to the end of the game, and begins the next life within the step that lost one.
    """

    def __init__(self, env: gym.Env[Any, Any], end_episodes: bool) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._opening = opening(game.get_action_meanings())
        self._ends_episodes = end_episodes
        self._goes_on = False  # the game, though the episode has ended
        self._lives, self._return, self._length = 0, 0.0, 0
        self._untold: list[tuple[float, int]] = []  # games that have ended, the oldest first
        self._owed = 0.0  # rewards of a reset's presses, which whole games do not lose

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin the next life, or a new game."""
        goes_on = self._goes_on and seed is None and not options
        self._goes_on = False
        if goes_on:
            begun = self._press((_NOOP, *self._opening))
            if begun is not None:
                return begun
            self._untold.append((self._return, self._length))
        elif seed is not None:  # what follows depends on the seed alone
            self._untold.clear()
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
                self._untold.append((self._return, self._length))
            if self._untold:
                total, length = self._untold.pop(0)
                info = {**info, GAME_RETURN: total, GAME_LENGTH: length}
        return obs, reward, terminated, truncated, info

    def _new_game(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        first = self.env.reset(seed=seed, options=options)
        self._return, self._length, self._owed = 0.0, 0, 0.0
        begun = self._press(self._opening) if self._opening else first
        if begun is None:  # the game is over before anybody has played
            begun = self.env.reset()
            self._return, self._length, self._owed = 0.0, 0, 0.0
        self._lives = self._lives_left()
        return begun

    def _press(self, actions: tuple[int, ...]) -> Any:
        """Take some actions; the last observation and info, or None where the game is over."""
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
    """A game of ALE whose state can be saved, so that a run goes on amid its episodes.

    The state is the emulator's, with its random numbers, and that of the wrappers beneath. The
    emulator does not tell which action it would repeat, so sticky actions (Machado et al. 2018) are
    drawn here, as likely as the env had them, for every frame.

    Args:
        env: a game of which every step is one frame.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        game: Any = env.unwrapped
        self._stickiness = game.ale.getFloat(_STICKINESS)
        self._last: Any = _NOOP
        if self._stickiness:
            game.ale.setFloat(_STICKINESS, 0.0)
            game.load_game()  # which is when the emulator reads it

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin a new game."""
        self._last = _NOOP
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Play a frame, with this action or the one before."""
        game: Any = self.unwrapped
        if not self._stickiness or game.np_random.random() >= self._stickiness:
            self._last = action
        return self.env.step(self._last)

    @staticmethod
    def is_possible(env: gym.Env[Any, Any]) -> bool:
        """Whether it is a game of ALE."""
        return hasattr(getattr(env.unwrapped, "ale", None), "cloneState")

    def get_state(self) -> dict[str, Any]:
        """All that the next steps depend on."""
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
        """Take back what `get_state` gave."""
        game: Any = self.unwrapped
        self.env.reset()  # the emulator needs a game before it can be given the state of one
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
