"""Which part of a run is one learner's, where several learn together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from rookery.common.cpus import usable_cpus
from rookery.common.references import imported
from rookery.run.settings import TrainSettings

_CLUSTER = "rookery.cluster.ray_cluster:Cluster"

T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """One learner's part of a run's envs.

    Attributes:
        rank: which learner, from 0.
        size: how many there are.
        num_envs: of the run.
    """

    rank: int
    size: int
    num_envs: int

    @property
    def first(self) -> int:
        """The first of its envs, as the run counts them."""
        return self.num_envs * self.rank // self.size

    @property
    def count(self) -> int:
        """How many envs are its own."""
        return self.num_envs * (self.rank + 1) // self.size - self.first

    def of(self, per_env: Sequence[T]) -> list[T]:
        """Its part of what there is one of for each env of the run."""
        return list(per_env[self.first : self.first + self.count])

    def settings(self, settings: TrainSettings) -> TrainSettings:
        """The settings by which it collects: its envs, and its part of the CPUs."""
        if self.size == 1:
            return settings
        workers = settings.num_workers
        if workers is None:
            workers = max(_usable_cpus(settings.cluster) // self.size, 1)
        return replace(settings, num_envs=self.count, num_workers=workers)


def _usable_cpus(cluster: str | None) -> int:
    """CPUs for workers, on this machine or on a cluster."""
    if cluster is None:
        return usable_cpus()
    capacity: int = imported(_CLUSTER)({"address": cluster}, None).capacity()
    return capacity
