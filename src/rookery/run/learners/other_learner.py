"""What a learner does that is not the first: collect from its envs, and take every step along."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pickle import dumps, loads
from typing import Any, Protocol

import numpy as np

from rookery.env import registrations
from rookery.learn.parallel.peers import PeerLost
from rookery.rollout import Rollout
from rookery.run.collection import open_collection
from rookery.run.finite import FiniteRollouts
from rookery.run.learners.share import Share
from rookery.run.native_batches import stepped
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName
from rookery.run.threads import torch_threads_for
from rookery.worker.entry import end_with_the_caller
from rookery.worker.failures import Failure
from rookery.worker.start.family import lead_family

LEFT_ALONE = 71  # the exit code of one that goes because another has gone
READY = b""


@dataclass(frozen=True)
class Task:
    """What the first learner tells another.

    Attributes:
        plan: of the run.
        collector: who collects; not "auto".
        share: its envs.
        policy_seed: of the actions that its policy draws.
        store: by which they find each other, see `ProcessGroup`.
        registrations: of the first one's env registry.
    """

    plan: RunPlan
    collector: CollectorName
    share: Share
    policy_seed: int
    store: str | None
    registrations: Any = None


@dataclass(frozen=True)
class Order:
    """What all learners do next: an update, or nothing more.

    Attributes:
        progress: of the run, from 0 to 1; None ends it.
        result: what the run has come to, at its end.
    """

    progress: float | None
    result: Any = None


class Pipe(Protocol):
    """To the first learner: a pipe of multiprocessing, or what stands for one on a cluster."""

    def send_bytes(self, data: bytes) -> None:
        """Send a message."""

    def recv_bytes(self) -> bytes:
        """Wait for one; raises EOFError when none can come."""


def run(pipe: Pipe, told: bytes) -> None:
    """Be another learner, in a process of its own.

    Args:
        pipe: takes `READY`, when everything is built, or a pickled `Failure`; then gives a message
            when all are ready.
        told: a `Task`, pickled.
    """
    lead_family()
    end_with_the_caller()
    try:
        task: Task = loads(told)
        registrations.install(task.registrations)
        follow(task, pipe)
    except (PeerLost, EOFError):  # the first one has gone, or knows who has
        sys.exit(LEFT_ALONE)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the first one hears of it
        pipe.send_bytes(dumps(Failure.of(error)))
        raise SystemExit(1) from None


def follow(task: Task, pipe: Pipe | None = None) -> Any:
    """Learn along until the first learner ends the run; return what it has come to.

    Args:
        task: what to do.
        pipe: as for `run`; None where torchrun has started everybody.
    """
    from rookery.learn.parallel.distributed import ProcessGroup  # which needs torch

    share, plan = task.share, task.plan
    settings = share.settings(plan.settings)
    peers = ProcessGroup(share.rank, share.size, task.store)
    source = stepped(plan.source, settings, task.collector, None)
    with ExitStack() as stack:
        collection = open_collection(
            source, plan.algorithm, settings, task.collector, task.policy_seed, _nothing,
            share, peers,
        )  # fmt: skip
        stack.callback(collection.close)
        stack.enter_context(torch_threads_for(False, share.size))
        if pipe is not None:
            pipe.send_bytes(READY)
            pipe.recv_bytes()
        peers.connect()
        stack.callback(peers.close)
        take_over(peers.hear(None), collection.policy, plan.algorithm, collection.collector, share)
        finite = FiniteRollouts()
        order: Order = peers.hear(None)
        while order.progress is not None:
            rollout = collection.collector.collect()
            finite.check(rollout)
            plan.algorithm.update(rollout, order.progress)
            collection.policy.version += 1
            peers.gather(without_observations(rollout, share))
            order = peers.hear(None)
        return order.result


def take_over(state: Any, policy: Any, algorithm: Any, collector: Any, share: Share) -> None:
    """Stand where the first learner stands."""
    policy.model.load_state_dict(state["model"])
    algorithm.load_state_dict(state["learner"])
    policy.version = state["policy_version"]
    if state["env_seeds"] is not None:
        collector.reset(share.of(state["env_seeds"]))


def without_observations(rollout: Rollout, share: Share) -> Rollout:
    """What others want to know of a rollout: rewards, and how episodes ended."""
    num_steps, num_envs = rollout.reward.shape
    return replace(
        rollout,
        obs=np.zeros((num_steps, num_envs, 0)),
        action=np.zeros((num_steps, num_envs, 0)),
        last_obs=np.zeros((num_envs, 0)),
        final_obs=np.zeros((len(rollout.final_index), 0)),
        memory=None,
        env_ids=rollout.env_ids + share.first,
    )


def _nothing() -> None:
    """Signals are the first learner's concern."""
