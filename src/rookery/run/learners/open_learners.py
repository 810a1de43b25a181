"""How many learners a run has, who starts them, and which of them this process is."""

from __future__ import annotations

import os
from typing import Any

from rookery.common.references import imported
from rookery.errors import ConfigError
from rookery.run.algorithms import BuiltIn, collector_for
from rookery.run.learners.learners import Learners, SeveralLearners, seed_of
from rookery.run.learners.other_learner import Task, follow
from rookery.run.learners.share import Share
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName

_ON_CLUSTER = "rookery.cluster.cluster_learners:LearnersOnCluster"


def open_learners(plan: RunPlan, collector: CollectorName, policy_seed: int) -> Learners:
    """Start the other learners of a run, if there are to be any.

    Raises:
        ConfigError: there cannot be so many, or not with this algorithm.
    """
    place = torchrun_place()
    if is_other_learner():
        raise ConfigError(
            "torchrun has started this process as another learner, which has no Trainer of its "
            "own: have all of them call rookery.train, or run rookery train"
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
    """Be another learner that torchrun has started; return what the run has come to."""
    place = torchrun_place()
    assert place is not None
    share = Share(place[0], num_learners(plan), plan.settings.num_envs)
    collector = collector_for(plan.algorithm, share.settings(plan.settings))
    seed = seed_of(plan.settings.seed, share.rank)
    return follow(Task(plan, collector, share, seed, None))


def is_other_learner() -> bool:
    """Whether torchrun has started this process, and not as the first of them."""
    place = torchrun_place()
    return place is not None and place[0] > 0


def torchrun_place() -> tuple[int, int] | None:
    """Rank and number of processes if torchrun has started this one; else None."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def num_learners(plan: RunPlan) -> int:
    """How many learners a run has: as many as torchrun has started, else those of its settings.

    Raises:
        ConfigError: there cannot be so many, or not with this algorithm.
    """
    place, size = torchrun_place(), plan.settings.num_learners
    if place is not None:
        if size not in (1, place[1]):
            raise ConfigError(
                f"num_learners is {size}, but torchrun has started {place[1]}; leave it out"
            )
        size = place[1]
    if size > 1:
        _require_several(plan, size)
    return size


def _require_several(plan: RunPlan, size: int) -> None:
    if not isinstance(plan.algorithm, BuiltIn):
        raise ConfigError(
            f"num_learners is {size}, but only learners of this library and their subclasses "
            "learn together; an Algorithm object of your own has one learner"
        )
    if plan.settings.num_envs < size:
        raise ConfigError(
            f"num_envs is {plan.settings.num_envs}, but each of {size} learners needs one at least"
        )
