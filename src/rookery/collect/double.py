"""DoubleBufferedCollector: the policy acts on one half of the envs while the other half steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from rookery.collect.base import Collector, CollectorStatistics, refuse_held_noise, refuse_memory
from rookery.collect.sync import SyncCollector
from rookery.common.seeding import consecutive_seeds
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.rollout.rollout import side_by_side
from rookery.vector.base import VectorEnv
from rookery.vector.statistics.snapshot import Statistics


class DoubleBufferedCollector(Collector):
    """Collects from two vector envs in turn, so that policy and workers work at the same time.

    The rollouts equal those of two `SyncCollector`, side by side. This is useful if acting takes
    about as long as stepping, for instance for a large network on a GPU. For small networks,
    `WorkerCollector` is faster.
    """

    def __init__(
        self,
        venvs: tuple[VectorEnv, VectorEnv],
        policy: Policy,
        num_steps: int,
        *,
        seed: int | Sequence[int | None] | None = None,
        values: bool = True,
        info_keys: Sequence[str] = (),
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the collector; the first `collect` resets the envs.

        Args:
            venvs: the two halves, with equal spaces and ``backend="process"``, because only workers
                step while this process acts.
            policy: policy that acts.
            num_steps: steps of every env in a rollout, ``T``.
            seed: seed or seeds of the first reset; an int means ``seed + i`` for env i of B.
            values: False leaves log probabilities and values zero, for learners that do not need
                them.
            info_keys: keys of numbers in the infos of episode ends, which a rollout stores in
                ``final_info``.
            between_steps: called before every step of a half. If it raises, `collect` raises, and
                in the next `collect` a half with a pending step starts new episodes.
        """
        refuse_memory(policy, "DoubleBufferedCollector")
        refuse_held_noise(policy, "DoubleBufferedCollector")
        self.num_envs = sum(venv.num_envs for venv in venvs)
        self.num_steps = num_steps
        seeds: Any = consecutive_seeds(seed, self.num_envs)
        first = venvs[0].num_envs
        self._halves = [
            SyncCollector(
                venv, policy, num_steps, seed=part, copy=False, values=values,
                info_keys=info_keys, between_steps=between_steps,
            )
            for venv, part in zip(venvs, (seeds[:first], seeds[first:]), strict=True)
        ]  # fmt: skip

    def collect(self) -> Rollout:
        turns = [half.steps() for half in self._halves]
        try:
            # In its turn, a half waits for its envs, acts and starts their step.
            for _ in zip_longest(*turns):
                pass
        finally:
            for turn in turns:
                turn.close()
        first, second = (half.result() for half in self._halves)
        second.env_ids = np.arange(first.num_envs, self.num_envs)
        self.policy_s = sum(half.policy_s for half in self._halves)
        self.env_s = sum(half.env_s for half in self._halves)
        return side_by_side([first, second])

    def statistics(self) -> CollectorStatistics:
        halves = [half.statistics() for half in self._halves]
        restarts = sum(half.restarts for half in halves)
        return CollectorStatistics(restarts, sum(half.lost_rows for half in halves))

    def telemetry(self) -> Statistics | None:
        first, second = (half.telemetry() for half in self._halves)
        return None if first is None or second is None else first.beside(second)

    def reset(self, seed: Sequence[int] | None = None) -> None:
        first = self._halves[0].num_envs
        parts = (None, None) if seed is None else (seed[:first], seed[first:])
        for half, part in zip(self._halves, parts, strict=True):
            half.reset(part)
