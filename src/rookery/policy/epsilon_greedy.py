"""Acting on action values: the best action, or now and then any."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.errors import SpaceError
from rookery.policy.base import Policy, PolicyStep, SplitPolicy
from rookery.policy.old_model import ActorCriticModel
from rookery.rollout.tree import Tree


class EpsilonGreedyPolicy(Policy):
    """Takes any action with probability ``epsilon``, else the one of the greatest output.

    Log probabilities and values are NaN: learners from replay read neither.

    Args:
        greedy: an actor-critic policy; its most probable action is that of the greatest output.
        action_space: Discrete.

    Attributes:
        model: the weights, those of ``greedy``.
        epsilon: share of random actions.
    """

    def __init__(self, greedy: Any, action_space: spaces.Space[Any]) -> None:
        if not isinstance(action_space, spaces.Discrete):
            kind = type(action_space).__name__
            raise SpaceError(f"action values need a Discrete action_space, not a {kind}")
        self.model: ActorCriticModel = greedy.model
        self.rng: np.random.Generator = greedy.rng
        self.epsilon = 1.0
        self._greedy = greedy
        self._first, self._count = int(action_space.start), int(action_space.n)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        if isinstance(self._greedy, SplitPolicy):
            action = self._greedy.sample(obs, deterministic=True)
        else:
            action = self._greedy.act(obs, deterministic=True).action
        if not deterministic:
            at_random = self.rng.random(len(action)) < self.epsilon
            drawn = self.rng.integers(self._count, size=len(action)) + self._first
            action = np.where(at_random, drawn, action)
        unknown = np.full(len(action), np.nan, np.float32)
        return PolicyStep(action, unknown, unknown)
