"""The loop of an additional learner: collect from its envs, and make every gradient step along."""

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
from rookery.run.checks import FiniteRollouts
from rookery.run.collection import open_collection, stepped
from rookery.run.learners.share import Share
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName
from rookery.run.threads import torch_threads_for
from rookery.worker.entry import end_with_the_caller
from rookery.worker.failures import Failure
from rookery.worker.start.family import lead_family

LEFT_ALONE = 71  # exit code of a learner that exits because another learner was lost
READY = b""


@dataclass(frozen=True)
class LearnerTask:
    """Everything that an additional learner needs to start.

    Attributes:
        plan: plan of the run.
        collector: name of the collector; not "auto".
        share: the envs of this learner.
        policy_seed: seed of its policy.
        store: rendezvous file or address, see `ProcessGroup`.
        registrations: env registrations of the first learner's process.
    """

    plan: RunPlan
    collector: CollectorName
    share: Share
    policy_seed: int
    store: str | None
    registrations: Any = None


@dataclass(frozen=True)
class LearnerOrder:
    """A message to all other learners: make an update, or exit.

    Attributes:
        progress: progress of the run, from 0 to 1; None ends it.
        result: result of the run, at its end.
    """

    progress: float | None
    result: Any = None


class Pipe(Protocol):
    """A connection to the first learner: a multiprocessing pipe, or its substitute on a cluster."""

    def send_bytes(self, data: bytes) -> None:
        """Send a message."""

    def recv_bytes(self) -> bytes:
        """Wait for a message; raise EOFError if the connection is closed."""


def run(pipe: Pipe, pickled_task: bytes) -> None:
    """Run an additional learner as the main function of a process.

    Args:
        pipe: receives `READY` when the envs are built, or a pickled `Failure`. It then yields a
            message when all learners are ready.
        pickled_task: a pickled `LearnerTask`.
    """
    lead_family()
    end_with_the_caller()
    try:
        task: LearnerTask = loads(pickled_task)
        registrations.install(task.registrations)
        follow(task, pipe)
    except (PeerLost, EOFError):  # the first learner is lost, or reports which other one is
        sys.exit(LEFT_ALONE)
    except BaseException as error:  # noqa: BLE001 - every error is sent to the first learner
        pipe.send_bytes(dumps(Failure.of(error)))
        raise SystemExit(1) from None


def follow(task: LearnerTask, pipe: Pipe | None = None) -> Any:
    """Collect and learn until the first learner ends the run; return the result of the run.

    Args:
        task: plan, share and seed of this learner.
        pipe: connection to the first learner, see `run`; None if torchrun started the learners.
    """
    from rookery.learn.parallel.distributed import ProcessGroup  # needs torch

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
        order: LearnerOrder = peers.hear(None)
        while order.progress is not None:
            rollout = collection.collector.collect()
            finite.check(rollout)
            plan.algorithm.update(rollout, order.progress)
            collection.policy.version += 1
            peers.gather(without_observations(rollout, share))
            order = peers.hear(None)
        return order.result


def take_over(state: Any, policy: Any, algorithm: Any, collector: Any, share: Share) -> None:
    """Load the state of the first learner."""
    policy.model.load_state_dict(state["model"])
    algorithm.load_state_dict(state["learner"])
    policy.version = state["policy_version"]
    if state["env_seeds"] is not None:
        collector.reset(share.of(state["env_seeds"]))


def without_observations(rollout: Rollout, share: Share) -> Rollout:
    """Return a copy of a rollout with rewards and episode ends, for the other learners."""
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
    """Ignore signals, which the first learner handles."""
