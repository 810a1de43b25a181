"""The other learners of a run on a Ray cluster: one actor for each, on any node with room."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from pickle import loads
from typing import Any, NamedTuple, NoReturn

from rookery.cluster.ray_actors import describe_loss, match_caller, this_node, wait_for_any
from rookery.cluster.ray_cluster import Cluster
from rookery.cluster.ray_session import require_ray
from rookery.common.pickling import by_value
from rookery.env import registrations
from rookery.learn.parallel.peers import PeerLost
from rookery.run.learners.learners import ENDING_S, REASON_S, StartedLearners
from rookery.run.learners.other_learner import LEFT_ALONE, READY, LearnerTask, follow
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName
from rookery.worker.failures import Failure

_GROUPS = {"messages": 1}
_LOOK_S = 0.1


class ClusterLearner:
    """Another learner in an actor; see `follow`.

    It is its own connection to the first learner, with `send_bytes` and `recv_bytes`.

    Args:
        version: version of the caller's rookery.
        folders: folders in which the caller finds modules.
    """

    def __init__(self, version: str, folders: list[str]) -> None:
        match_caller(version, folders)
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._go = threading.Event()

    def where(self) -> tuple[str, int]:
        """Return the node and the process id."""
        return this_node(), os.getpid()

    def run(self, task_bytes: bytes) -> Any:
        """Learn until the end of the run; return None, `LEFT_ALONE`, or a Failure."""
        try:
            task: LearnerTask = loads(task_bytes)
            registrations.install(task.registrations)
            follow(task, self)
        except (PeerLost, EOFError):
            return LEFT_ALONE
        except BaseException as error:
            return Failure.of(error)
        return None

    def message(self) -> bytes:
        """Wait for the learner's first message. Called by another thread."""
        return self._messages.get()

    def go(self) -> None:
        """Start learning, because all learners are ready. Called by another thread."""
        self._go.set()

    def send_bytes(self, data: bytes) -> None:
        """Send a message to the first learner."""
        self._messages.put(data)

    def recv_bytes(self) -> bytes:
        """Wait until all learners are ready."""
        self._go.wait()
        return READY


class _Other(NamedTuple):
    rank: int
    actor: Any
    where: Any  # references to the results of the actor's methods
    message: Any
    end: Any


class LearnersOnCluster(StartedLearners):
    """Several learners: the first is this process, and the others are actors.

    Args:
        plan: plan of the run.
        collector: name of the collector.
        policy_seed: seed of the run's policy.
    """

    def __init__(self, plan: RunPlan, collector: CollectorName, policy_seed: int) -> None:
        self._cluster = cluster = Cluster({"address": plan.settings.cluster}, None)
        self._ray, self._options = require_ray(), _options(plan)
        self._others: list[_Other] = []
        super().__init__(plan, f"tcp://{self._ray.util.get_node_ip_address()}:0")
        self._finalizer = weakref.finalize(self, _end, self._others, cluster)
        self.start_others(plan, collector, policy_seed)

    def start(self, task: LearnerTask) -> None:
        actor = self._cluster.create_actor(ClusterLearner, _GROUPS, self._options)
        messages = actor.message.options(concurrency_group="messages")
        where, end = actor.where.remote(), actor.run.remote(by_value(task))
        self._others.append(_Other(task.share.rank, actor, where, messages.remote(), end))

    def meet(self) -> None:
        for other in self._others:
            waiting = self._cluster.waiting(f"Learner {other.rank}", {})
            while not wait_for_any([other.message, other.end], _LOOK_S):
                waiting.look()
            if wait_for_any([other.end], 0.0):
                self._died(other)
        for other in self._others:
            other.actor.go.options(concurrency_group="messages").remote()
        super().meet()

    def lost(self, error: Exception) -> NoReturn:
        self._is_over = True
        waiting = {other.end: other for other in self._others}
        while waiting and (ended := wait_for_any(list(waiting), REASON_S)):
            for reference in ended:
                other = waiting.pop(reference)
                if self._outcome(other) != LEFT_ALONE:
                    self._died(other)
        super().lost(error)

    def _outcome(self, other: _Other) -> Any:
        try:
            return self._ray.get(other.end)
        except self._ray.exceptions.RayError as error:
            return error

    def _died(self, other: _Other) -> NoReturn:
        outcome = self._outcome(other)
        try:
            node, pid = self._ray.get(other.where, timeout=_LOOK_S)
            known = f" (process {pid} on node {node})"
        except self._ray.exceptions.RayError:
            known = ""
        cause = outcome.error() if isinstance(outcome, Failure) else None
        how = "ended before the run did"
        if isinstance(outcome, Exception):
            how = describe_loss(outcome)
        self.raise_died(other.rank, known, how, cause)

    def close(self) -> None:
        super().close()
        if self._others and self._cluster.is_joined:
            ends = [other.end for other in self._others]
            self._ray.wait(ends, num_returns=len(ends), timeout=ENDING_S)
        self._finalizer()


def _options(plan: RunPlan) -> dict[str, Any]:
    """Return Ray's options for a learner: no CPU, because its workers wait while it learns."""
    device = str(getattr(getattr(plan.algorithm, "config", None), "device", "cpu"))
    options: dict[str, Any] = {"num_cpus": 0}
    if device.startswith("cuda"):
        options["num_gpus"] = 1
    return {**options, "scheduling_strategy": "SPREAD"}


def _end(others: list[_Other], cluster: Cluster) -> None:
    if cluster.is_joined:
        ray = require_ray()
        for other in others:
            ray.kill(other.actor)
    others.clear()
