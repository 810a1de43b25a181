"""What every collector does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.vector.statistics.snapshot import Statistics


def refuse_memory(policy: Any, collector: str) -> None:
    """Complain of a policy that remembers, where all envs must be decided for at once."""
    if getattr(policy, "is_recurrent", False):
        raise ConfigError(
            f"{collector} cannot keep what a recurrent policy remembers; use SyncCollector or "
            "WorkerCollector"
        )


def refuse_held_noise(policy: Any, collector: str) -> None:
    """Complain of noise that goes on from one step of an env to the next, likewise."""
    layout = getattr(policy, "layout", None)
    if getattr(policy, "follows_episodes", False) or getattr(layout, "num_latent", 0):
        raise ConfigError(
            f"{collector} cannot keep the noise that {type(policy).__name__} holds from step to "
            "step; use SyncCollector or WorkerCollector"
        )


def memory_size(policy: Policy) -> int:
    """Count the numbers that a policy remembers of one env; its own memory stays as it is.

    Raises:
        ConfigError: it is recurrent, and shows no memory once episodes have begun.
    """
    if not policy.is_recurrent:
        return 0
    before = policy.memory
    policy.memory = None
    policy.begin_episodes(np.ones(1, np.bool_))
    memory: npt.NDArray[np.float32] | None = getattr(policy, "memory")  # noqa: B009 set just now
    policy.memory = before
    if memory is None:
        raise ConfigError(
            f"{type(policy).__name__} is recurrent, but has no memory after begin_episodes; "
            "workers must know its size before they start: set memory there to zeros [B, M]"
        )
    return int(memory.shape[1])


@dataclass(frozen=True)
class CollectorStatistics:
    """What faults have cost so far.

    Attributes:
        restarts: workers that were replaced.
        lost_rows: rows, of one env each, that were begun and are not learned from.
    """

    restarts: int
    lost_rows: int


class Collector(ABC):
    """Lets a policy act in envs and hands out what they experienced.

    Attributes:
        num_envs: B of the rollouts.
        num_steps: T of the rollouts.
        policy_s: seconds spent deciding so far.
        env_s: seconds spent stepping envs so far, waiting for them included.
    """

    num_envs: int
    num_steps: int
    policy_s: float = 0.0
    env_s: float = 0.0

    @abstractmethod
    def collect(self) -> Rollout:
        """Step every env ``num_steps`` times and return the rollout, ``[T, B, ...]``.

        Episodes go on from one rollout to the next.
        """

    def reset(self, seed: Sequence[int] | None = None) -> None:
        """Begin new episodes in all envs; a collector that does so by itself need do nothing."""
        return

    def statistics(self) -> CollectorStatistics:
        """What faults have cost so far, as a frozen snapshot; after ``close`` the last one."""
        return CollectorStatistics(0, 0)

    def telemetry(self) -> Statistics | None:
        """What envs, workers and caller did and use, as ``VectorEnv.statistics`` tells it.

        After ``close`` the last snapshot. None where the envs tell nothing of the kind.
        """
        return None

    def state_dict(self) -> dict[str, Any] | None:
        """Where it stands, as plain data; None where that cannot be said."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; the envs must have been reset."""
        raise NotImplementedError(f"{type(self).__name__} cannot go on from a state")
