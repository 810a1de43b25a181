"""The share of a run's envs that one of several learners has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rookery.common.cpus import usable_cpus
from rookery.common.importing import imported
from rookery.run.settings import TrainSettings

_CLUSTER = "rookery.cluster.ray_cluster:Cluster"

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """One learner's share of a run's envs.

    Attributes:
        rank: rank of the learner, from 0.
        size: number of learners.
        num_envs: number of envs of the run.
    """

    rank: int
    size: int
    num_envs: int

    @property
    def first(self) -> int:
        """Index of this learner's first env in the run."""
        return self.num_envs * self.rank // self.size

    @property
    def count(self) -> int:
        """Number of this learner's envs."""
        return self.num_envs * (self.rank + 1) // self.size - self.first

    def of(self, per_env: Sequence[T]) -> list[T]:
        """Return this learner's slice of a sequence with one entry per env."""
        return list(per_env[self.first : self.first + self.count])

    def settings(self, settings: TrainSettings) -> TrainSettings:
        """Return the settings with this learner's number of envs and workers."""
        if self.size == 1:
            return settings
        workers = settings.num_workers
        if workers is None:
            workers = max(_usable_cpus(settings.cluster) // self.size, 1)
        return replace(settings, num_envs=self.count, num_workers=workers)


def _usable_cpus(cluster: str | None) -> int:
    """Return the number of CPUs for workers, on this machine or on a cluster."""
    if cluster is None:
        return usable_cpus()
    capacity: int = imported(_CLUSTER)({"address": cluster}, None).capacity()
    return capacity
