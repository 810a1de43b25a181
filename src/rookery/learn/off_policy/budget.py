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
        self._env_steps = self._spent = 0
        self._since = self._spent_before = 0  # where ratio or warm-up were changed last

    @property
    def is_warming_up(self) -> bool:
        """Whether the next env step brings no gradient step yet."""
        return self._env_steps < self._warmup_steps

    def spend(self, env_steps: int) -> int:
        """Take in ``env_steps`` new env steps; return the gradient steps that are due."""
        self._env_steps += env_steps
        earned = self._earned()
        due, self._spent = earned - self._spent, earned
        return due

    def _earned(self) -> int:
        """Gradient steps that all env steps so far bring."""
        begin = max(self._since, self._warmup_steps)
        return self._spent_before + math.floor(max(self._env_steps - begin, 0) * self._ratio)

    def begin_anew(self) -> None:
        """Warm up from the start: what was collected before is no longer there."""
        self._env_steps = self._spent = 0
        self._since = self._spent_before = 0

    def state_dict(self) -> dict[str, Any]:
        """Counters, as plain data."""
        return {
            "env_steps": self._env_steps,
            "spent": self._spent,
            "since": self._since,
            "spent_before": self._spent_before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; another ratio or warm-up counts from there on."""
        self._env_steps, self._spent = int(state["env_steps"]), int(state["spent"])
        # Files of 0.9.0 have neither of the two.
        self._since = int(state.get("since", 0))
        self._spent_before = int(state.get("spent_before", 0))
        if self._earned() != self._spent:
            self._since, self._spent_before = self._env_steps, self._spent
