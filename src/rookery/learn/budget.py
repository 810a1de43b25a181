"""How many gradient steps a learner from replay makes."""

from __future__ import annotations

import math
from typing import Any


class UpdateBudget:
    """Keeps gradient steps per env step constant, however many envs there are.

    Fractions are carried over: with a ratio of 0.25 and 6 envs, steps of all envs bring one, two,
    one, two gradient steps.

    Args:
        ratio: gradient steps per env step.
        warmup_steps: env steps at the start that bring none.
    """

    def __init__(self, ratio: float, warmup_steps: int) -> None:
        self._ratio = ratio
        self._warmup_steps = warmup_steps
        self._env_steps = 0
        self._spent = 0

    @property
    def is_warming_up(self) -> bool:
        """Whether the next env step brings no gradient step yet."""
        return self._env_steps < self._warmup_steps

    def spend(self, env_steps: int) -> int:
        """Take in ``env_steps`` new env steps; return the gradient steps that are due."""
        self._env_steps += env_steps
        earned = math.floor(max(self._env_steps - self._warmup_steps, 0) * self._ratio)
        due, self._spent = earned - self._spent, earned
        return due

    def begin_anew(self) -> None:
        """Warm up from the start: what was collected before is no longer there."""
        self._env_steps = self._spent = 0

    def state_dict(self) -> dict[str, Any]:
        """Counters, as plain data."""
        return {"env_steps": self._env_steps, "spent": self._spent}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._env_steps, self._spent = int(state["env_steps"]), int(state["spent"])
