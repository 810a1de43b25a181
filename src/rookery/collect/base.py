"""The interface of collectors."""

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


def refuse_memory(policy: Policy, collector: str) -> None:
    """Raise `ConfigError` if the policy is recurrent."""
    if policy.is_recurrent:
        raise ConfigError(
            f"{collector} does not support recurrent policies; use SyncCollector or WorkerCollector"
        )


def refuse_held_noise(policy: Policy, collector: str) -> None:
    """Raise `ConfigError` if the policy's noise continues from one step of an env to the next."""
    layout = getattr(policy, "layout", None)
    if getattr(policy, "follows_episodes", False) or getattr(layout, "num_latent", 0) > 0:
        raise ConfigError(
            f"{collector} does not support the noise that {type(policy).__name__} keeps between "
            "steps; use SyncCollector or WorkerCollector"
        )


def memory_width(policy: Policy) -> int:
    """Return the size of a policy's memory per env, without changing its current memory.

    Raises:
        ConfigError: the policy is recurrent but has no memory after ``begin_episodes``.
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
    """Counts of faults so far.

    Attributes:
        restarts: number of workers that were replaced.
        lost_rows: number of started env steps that are excluded from learning.
    """

    restarts: int
    lost_rows: int


class Collector(ABC):
    """Base class of collectors, which let a policy act in envs and return rollouts.

    Attributes:
        num_envs: number of envs, B of the rollouts.
        num_steps: steps per env, T of the rollouts.
        policy_s: seconds spent in the policy so far.
        env_s: seconds spent stepping envs so far, including waiting for them.
    """

    num_envs: int
    num_steps: int
    policy_s: float = 0.0
    env_s: float = 0.0

    @abstractmethod
    def collect(self) -> Rollout:
        """Step every env ``num_steps`` times and return the rollout, ``[T, B, ...]``.

        Episodes continue from one rollout to the next.
        """

    def reset(self, seed: Sequence[int] | None = None) -> None:
        """Start new episodes in all envs; the default does nothing."""
        return

    def statistics(self) -> CollectorStatistics:
        """Return counts of faults so far; after ``close``, the last counts."""
        return CollectorStatistics(0, 0)

    def telemetry(self) -> Statistics | None:
        """Return measurements of envs, workers and caller, as from ``VectorEnv.statistics``.

        After ``close`` this is the last snapshot. None if the envs provide no statistics.
        """
        return None

    def state_dict(self) -> dict[str, Any] | None:
        """Return the collector's state as plain data; None if it cannot be saved."""
        return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`; the envs must have been reset."""
        raise NotImplementedError(f"{type(self).__name__} cannot load a state")
