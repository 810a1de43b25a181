"""What every collector does."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rookery.rollout import Rollout


class Collector(ABC):
    """Lets a policy act in envs and hands out what they experienced.

    Attributes:
        num_envs: B of the rollouts.
        num_steps: T of the rollouts.
    """

    num_envs: int
    num_steps: int

    @abstractmethod
    def collect(self) -> Rollout:
        """Step every env ``num_steps`` times and return the rollout, ``[T, B, ...]``.

        Episodes go on from one rollout to the next.
        """
