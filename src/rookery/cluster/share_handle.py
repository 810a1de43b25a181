"""ShareHandle: one node share as its caller sees it; and NodeShares, all shares of a collector.

The actor behind a handle is a :class:`~rookery.cluster.node_share.NodeShare`.
"""

from __future__ import annotations

import os
import pickle
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gymnasium import Space

from rookery.cluster.node_share import Collected, NodeShare, ShareFailed, ShareTask
from rookery.cluster.ray_actors import describe_loss, end_actor, wait_for_any
from rookery.cluster.ray_cluster import Cluster, Waiting
from rookery.cluster.ray_session import require_ray
from rookery.collect.base import CollectorStatistics
from rookery.env.recipe import EnvRecipe
from rookery.errors import RookeryError, SpaceError, WorkerDied, WorkerError
from rookery.rollout.rollout import size_of
from rookery.vector.specs import remote_specs, split
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.failures import Failure
from rookery.worker.fault_policy import FaultPolicy

# Ray sends objects below 100 kB in messages, and larger ones through the object stores of both
# nodes. That took 7 ms, and a message 2 ms.
MESSAGE_BYTES = 90_000
_MOST_PIECES = 10  # messages per rollout; larger rollouts go through the object stores

_GROUPS = {"leave": 1}
_LOOK_S = 0.1
_CLOSE_S = 5.0


class NodeShares:
    """The worker processes of a collector on the nodes of a cluster, in several node shares.

    Args:
        recipes: recipes of the envs.
        num_workers: number of worker processes; None means as many as the cluster has room for.
        options: options of `ProcessVectorEnv`, without `num_workers`.
        ray_options: see `rookery.make_vec`.
        between_waits: called ten times a second while shares are awaited.

    Attributes:
        single_observation_space: observation space of one env.
        single_action_space: action space of one env.
        num_envs: number of envs of all shares.
        num_workers: number of worker processes of all shares.
        shares: the shares in the order of their envs.
        cluster: cluster of the shares.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: the cluster cannot be joined, or no node can run a worker.
        WorkerError: an env cannot be built.
    """

    def __init__(
        self,
        recipes: Sequence[EnvRecipe],
        num_workers: int | None,
        options: dict[str, Any],
        ray_options: Mapping[str, Any] | None,
        between_waits: Callable[[], None],
    ) -> None:
        self._ray = require_ray()
        self.cluster = cluster = Cluster(ray_options, num_workers)
        cluster.require_place()
        self.num_envs = len(recipes)
        self.num_workers = min(num_workers or cluster.capacity(), self.num_envs)
        ranges = split(self.num_envs, self.num_workers)
        self.shares: list[ShareHandle] = []
        try:
            self._start(recipes, ranges, options)
            self._check_spaces(between_waits)
        except BaseException:
            self.close(terminate=True)
            raise

    def _start(
        self, recipes: Sequence[EnvRecipe], ranges: Sequence[range], options: dict[str, Any]
    ) -> None:
        """Start all shares."""
        cluster, taken, num_cpus = self.cluster, 0.0, self.cluster.num_cpus_of_all()
        num_groups = -(-self.num_workers // cluster.workers_per_node())
        groups = split(self.num_workers, num_groups)
        env_ids = [range(ranges[g.start].start, ranges[g.stop - 1].stop) for g in groups]
        specs = remote_specs(recipes, env_ids)
        for workers, envs, spec in zip(groups, env_ids, specs, strict=True):
            share_options = {**options, "num_workers": len(workers)}
            share = ShareHandle(cluster, len(self.shares), envs, workers, spec, share_options)
            self.shares.append(share)
            share.start(must_share=taken + share.num_cpus > num_cpus)
            taken += 0.0 if share.is_sharing_cpus else share.num_cpus

    def _check_spaces(self, between_waits: Callable[[], None]) -> None:
        spaces = [share.wait_for_spaces(between_waits) for share in self.shares]
        if any(each != spaces[0] for each in spaces):
            raise SpaceError(f"Envs have different spaces: {spaces}")
        self.single_observation_space: Space[Any] = spaces[0][0]
        self.single_action_space: Space[Any] = spaces[0][1]

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers, on their nodes."""
        return tuple(pid for share in self.shares for pid in share.pids)

    def close(self, terminate: bool = False) -> None:
        """End the shares. Further calls do nothing."""
        end_shares(os.getpid(), self.shares, terminate)


class ShareHandle:
    """One node share as its caller sees it.

    Args:
        cluster: cluster of the share.
        place: index of the share.
        env_ids: envs of the share.
        workers: indices of the share's workers.
        spec: the pickled `WorkerSpec` of the envs.
        options: options of the share's `ProcessVectorEnv`.

    Attributes:
        env_ids: envs of the share.
        workers: indices of the share's workers.
        num_cpus: CPUs that the share needs.
        node: node of the share; empty until its envs are built.
        pids: process ids of the workers.
        is_sharing_cpus: True if the share uses CPUs that other actors have reserved.
        attempt: how often the share was restarted.
        is_lost: True if the actor is gone.
        opened: reference that is ready once the envs are built.
        waiting: warns until the share has a node.
        pending: reference to the rollout that is being collected, or None.
        statistics: cost of faults, as reported last.
        telemetry: statistics of envs and processes, as reported last.
    """

    def __init__(
        self,
        cluster: Cluster,
        place: int,
        env_ids: range,
        workers: range,
        spec: bytes,
        options: dict[str, Any],
    ) -> None:
        self.env_ids, self.workers = env_ids, workers
        self.num_cpus = cluster.num_cpus * len(workers)
        self.node = ""
        self.pids: tuple[int, ...] = ()
        self.is_sharing_cpus = False
        self.attempt = -1
        self.is_lost = False
        self.pending: Any = None
        self.statistics = CollectorStatistics(0, 0)
        self.telemetry: Statistics | None = None
        self._num_pieces = 1
        self._ray = require_ray()
        self._cluster, self._spec, self._options = cluster, spec, options
        self._name = f"Node share {place} (envs {env_ids[0]}-{env_ids[-1]})"
        self._actor: Any = None

    def start(self, must_share: bool) -> None:
        """Start the share's actor and workers on some node.

        Args:
            must_share: True to use CPUs that other actors have reserved.
        """
        options = {**self._cluster.options, "num_cpus": self.num_cpus}
        self.is_sharing_cpus = must_share
        if self.is_sharing_cpus:
            warnings.warn(
                f"{self._name} needs {self.num_cpus:g} CPUs, and no node has so many free CPUs. It "
                "shares CPUs with others until a node has enough",
                RuntimeWarning,
                stacklevel=2,
            )
            options["num_cpus"] = 0
        self.attempt, self.is_lost = self.attempt + 1, False
        self.node, self.pending = "", None
        self._actor = self._cluster.create_actor(NodeShare, _GROUPS, options)
        self.waiting: Waiting = self._cluster.waiting(self._name, options)
        self._placed = self._actor.ping.options(concurrency_group="leave").remote()
        self.opened = self._actor.open.remote(self._spec, self._options)

    def wait_for_spaces(self, between_waits: Callable[[], None]) -> tuple[Space[Any], Space[Any]]:
        """Wait until the envs are built, and return the spaces of one env."""
        while not wait_for_any([self.opened], _LOOK_S):
            between_waits()
            self.waiting.look()
            if self.should_share_cpus():
                self.end(deadline=0.0)
                self.start(must_share=True)
        self._take_opened()
        return self._spaces

    def should_share_cpus(self) -> bool:
        """Return True if the share should use CPUs of other actors instead of waiting longer.

        False if the share has a node and only its envs take long to build.
        """
        return not wait_for_any([self._placed], 0.0) and self.waiting.should_share_cpus()

    def _take_opened(self) -> None:
        """Read the node, spaces and process ids of the share."""
        self.node, spaces, self.pids = self.get(self.opened)
        self._spaces: tuple[Space[Any], Space[Any]] = pickle.loads(spaces)

    def has_come(self) -> bool:
        """Return True if the share has a node and its envs are built; warn if that takes long."""
        if not self.node and wait_for_any([self.opened], 0.0):
            self._take_opened()
        if not self.node:
            self.waiting.look()
        return bool(self.node)

    def begin(self, task: ShareTask, faults: FaultPolicy) -> None:
        """Start the policy in the share."""
        self._cluster.require_session()
        self._actor.begin.remote(task, faults)

    def collect(self, weights: Any) -> None:
        """Begin a rollout; ``weights`` is a :class:`WeightSet`, or a reference to one."""
        self._cluster.require_session()
        count = self._num_pieces
        references = self._actor.collect.options(num_returns=count).remote(weights, count)
        self._pieces = [references] if count == 1 else references
        self.pending = self._pieces[0]  # all pieces become ready together

    def take(self) -> Collected:
        """Wait for the rollout."""
        collected: Collected = self.get(self._pieces if len(self._pieces) > 1 else self.pending)
        self.pending = None
        self.statistics = collected.statistics
        self.telemetry = collected.telemetry or self.telemetry
        count = -(-size_of(collected.rollout) // MESSAGE_BYTES)
        self._num_pieces = count if count <= _MOST_PIECES else 1
        return collected

    def get(self, references: Any) -> Any:
        """Return the result of a call, whole or in pieces.

        Raises:
            WorkerDied: the actor or its node was lost.
            RookeryError: the call failed in the actor.
        """
        try:
            if not self._cluster.is_joined:
                raise self._ray.exceptions.RayError("Ray was shut down")
            answer = self._ray.get(references)
        except self._ray.exceptions.RayError as error:
            self.is_lost = True
            raise WorkerDied(
                f"{self._name} on node {self.node or 'unknown'} {describe_loss(error)}",
                env_ids=tuple(self.env_ids),
                command="collect",
            ) from error
        if isinstance(answer, list):
            answer = pickle.loads(b"".join(answer))
        if isinstance(answer, ShareFailed):
            self.statistics = answer.statistics
            raise self._error(answer.failure)
        return answer

    def _error(self, failure: Failure) -> RookeryError:
        """Return the error of a failure, with the ids that envs have in the collector."""
        first, context = self.env_ids.start, failure.context
        if context is not None:
            ids = tuple(first + i for i in context["env_ids"])
            return replace(failure, context={**context, "env_ids": ids}).error()
        error = failure.error()
        cause = error.__cause__ if type(error) is WorkerError else error
        if not isinstance(cause, WorkerError):
            return error
        ids = tuple(first + i for i in cause.env_ids)
        return type(cause)(f"{self._name}: {cause}", env_ids=ids, command=cause.command)

    def end(self, deadline: float) -> None:
        """End the actor, gracefully until ``deadline``."""
        if self._actor is None or not self._cluster.is_joined:
            return
        if deadline:
            self._actor.leave.options(concurrency_group="leave").remote()
            closed = self._actor.close.remote()
            wait_for_any([closed], max(deadline - time.perf_counter(), 0.0))
        end_actor(self._actor, "leave")
        self._actor = None


def end_shares(owner_pid: int, shares: Sequence[ShareHandle], terminate: bool) -> None:
    """End the actors of all shares, unless this process was forked from their owner."""
    if os.getpid() != owner_pid:  # in a forked copy
        return
    deadline = 0.0 if terminate else time.perf_counter() + _CLOSE_S
    for share in shares:
        share.end(deadline)
