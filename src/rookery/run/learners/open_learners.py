"""Number, start and rank of a run's learners."""

from __future__ import annotations

import os
from typing import Any

from rookery.common.importing import imported
from rookery.errors import ConfigError
from rookery.run.algorithms import BuiltIn
from rookery.run.collection import collector_for
from rookery.run.learners.learners import Learners, SeveralLearners, seed_of
from rookery.run.learners.other_learner import LearnerTask, follow
from rookery.run.learners.share import Share
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName

_ON_CLUSTER = "rookery.cluster.cluster_learners:LearnersOnCluster"


def open_learners(plan: RunPlan, collector: CollectorName, policy_seed: int) -> Learners:
    """Start the other learners of a run, if any.

    Raises:
        ConfigError: the number of learners is invalid, or the algorithm supports only one.
    """
    place = torchrun_place()
    if is_other_learner():
        raise ConfigError(
            "torchrun started this process as an additional learner, which cannot have a Trainer; "
            "call rookery.train in all processes, or run rookery train"
        )
    size = num_learners(plan)
    if size == 1:
        return Learners(plan.settings.num_envs)
    if place is None:
        if plan.settings.cluster is not None:
            on_cluster: Learners = imported(_ON_CLUSTER)(plan, collector, policy_seed)
            return on_cluster
        from rookery.run.learners.local_learners import LocalLearners

        return LocalLearners(plan, collector, policy_seed)
    from rookery.learn.parallel.distributed import ProcessGroup

    return SeveralLearners(plan.settings.num_envs, ProcessGroup(0, size, None))


def learn_along(plan: RunPlan) -> Any:
    """Run an additional learner that torchrun started; return the result of the run."""
    place = torchrun_place()
    assert place is not None
    share = Share(place[0], num_learners(plan), plan.settings.num_envs)
    collector = collector_for(plan.algorithm, share.settings(plan.settings))
    seed = seed_of(plan.settings.seed, share.rank)
    return follow(LearnerTask(plan, collector, share, seed, None))


def is_other_learner() -> bool:
    """Return True if torchrun started this process with a rank above 0."""
    place = torchrun_place()
    return place is not None and place[0] > 0


def torchrun_place() -> tuple[int, int] | None:
    """Return rank and number of processes if torchrun started this process, else None."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def num_learners(plan: RunPlan) -> int:
    """Return the number of processes that torchrun started, or else ``num_learners``.

    Raises:
        ConfigError: the number of learners is invalid, or the algorithm supports only one.
    """
    place, size = torchrun_place(), plan.settings.num_learners
    if place is not None:
        if size not in (1, place[1]):
            raise ConfigError(
                f"num_learners is {size}, but torchrun started {place[1]} processes; leave it out"
            )
        size = place[1]
    if size > 1:
        _require_several(plan, size)
    return size


def _require_several(plan: RunPlan, size: int) -> None:
    if not isinstance(plan.algorithm, BuiltIn):
        raise ConfigError(
            f"num_learners is {size}, but only the algorithms of this library "
            "support several learners; a custom algorithm needs num_learners=1"
        )
    if plan.settings.num_envs < size:
        raise ConfigError(
            f"num_envs is {plan.settings.num_envs}, but each of {size} learners needs at least one"
        )
