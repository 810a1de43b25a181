"""Scripted: an env with predictable results, which show any step too many or too few."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from rookery.testing.faulty import Faulty

_SPACE = gym.spaces.Box(-np.inf, np.inf, (5,), np.float64)
_NESTED = gym.spaces.Dict(
    {
        "numbers": _SPACE,
        "pair": gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (), np.float32))),
        "text": gym.spaces.Text(100, charset="0123456789."),
    }
)


class Scripted(Faulty):
    """A :class:`Faulty` env with more detailed observations, rewards and infos.

    The observation is float64 ``[5]``: steps since it was built, steps since its last reset, resets
    since it was built, the last seed, and a random number of this step or reset. So a step too many
    or too few, a row of another env and an old row can be detected. The reward is the steps since
    it was built plus a thousandth of the action. The keys and sizes of its infos change from step
    to step.

    Args:
        end_rate: the probability that a step ends the episode, half of the time by truncation.
        nested: True puts the observation into a Dict with a Tuple and a Text.
        num_actions: the actions are 0 to ``num_actions - 1``, none of them a fault; None allows
            every :class:`Fault` too.
        render_mode: None or ``"rgb_array"``.
    """

    def __init__(
        self,
        end_rate: float = 0.0,
        nested: bool = False,
        num_actions: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.observation_space: Any = _NESTED if nested else _SPACE
        if num_actions is not None:
            self.action_space = gym.spaces.Discrete(num_actions)
        self.end_rate = end_rate
        self.nested = nested
        self.steps_ever = 0
        self.resets = 0
        self.draw = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; ``options={"word": word}`` is returned in the info."""
        self.resets += 1
        gym.Env.reset(self, seed=seed)
        self.draw = float(self.np_random.random())
        obs, _ = super().reset(seed=seed, options=options)
        info: dict[str, Any] = {"resets": self.resets}
        if options and "word" in options:
            info["word"] = options["word"]
        return obs, info

    def step(self, action: Any) -> Any:
        """Count, draw a random number, and end or fail as requested."""
        self.steps_ever += 1
        self.draw = float(self.np_random.random())
        end = self.np_random.random()
        result = super().step(action)
        if type(result) is not tuple:
            return result
        obs, reward, terminated, truncated, _ = result
        if not isinstance(reward, str):
            reward = self.steps_ever + int(action) / 1000
        terminated = terminated or end < self.end_rate / 2
        truncated = truncated or self.end_rate / 2 <= end < self.end_rate
        return obs, reward, terminated, truncated, self._info()

    def _obs(self) -> Any:
        numbers = np.array([self.steps_ever, self.count, self.resets, self.seed, self.draw])
        if not self.nested:
            return numbers
        return {
            "numbers": numbers,
            "pair": (np.int64(self.count % 2), np.float32(self.draw)),
            "text": str(self.draw)[: 1 + self.steps_ever % 9],
        }

    def _info(self) -> dict[str, Any]:
        """Return one of six forms of infos, chosen by the present numbers."""
        forms: list[dict[str, Any]] = [
            {},
            {"ratio": self.draw, "steps_ever": self.steps_ever},
            {"nested": {"deep": {"even": self.count % 2 == 0}, "name": f"step {self.count}"}},
            {"vector": np.full(3, self.draw, np.float32)},
            {"nothing": None, "list": [self.count, self.draw], "ratio": self.draw},
            {"text": "x" * int(3000 * self.draw**8), "steps_ever": self.steps_ever},
        ]
        return forms[(7 * self.steps_ever + int(97 * self.draw)) % len(forms)]
