"""RayPool: what an ActorPool is on one machine, over node shares of a Ray cluster."""

from __future__ import annotations

import os
import pickle
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import Space

from rookery.cluster.node_share import Collected, Failed, NodeShare, ShareTask, WeightSet
from rookery.cluster.ray_cluster import (
    Cluster,
    Waiting,
    end_actor,
    in_words,
    require_ray,
    wait_for_any,
)
from rookery.collect.actor import Report
from rookery.collect.base import CollectorStatistics
from rookery.collect.rollout_buffers import RolloutShape
from rookery.common.pickling import by_value
from rookery.common.seeding import derived_seed
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.errors import RookeryError, SpaceError, WorkerDied, WorkerError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.rollout.join import side_by_side, size_of
from rookery.vector.specs import make_specs, pickled_spec, split
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.failures import Failure
from rookery.worker.fault_policy import FaultPolicy, RestartBudget
from rookery.worker.protocol import BatchMaker

# Ray sends what is smaller than 100 kB with its messages; else it goes through the object stores of
# both nodes, which took 7 ms where a message took 2.
_MESSAGE_BYTES = 90_000
_MOST_PIECES = 10  # more are better off in the store

_GROUPS = {"leave": 1}
_LOOK_S = 0.1
_CLOSE_S = 5.0
_REPLACE_LOOK_S = 2.0  # between two looks whether nodes have joined


class NodeShares:
    """Worker processes on the nodes of a cluster, a share of them in each of some actors.

    Args:
        recipes: of the envs.
        num_workers: worker processes; None means as many as the cluster has room for.
        options: of `ProcessVectorEnv`, but for `num_workers`.
        ray_options: see `rookery.make_vec`.
        between_waits: called ten times a second while something is waited for.

    Attributes:
        single_observation_space: of one env.
        single_action_space: of one env.
        num_envs: over all shares.
        num_workers: likewise.
        shares: in the order of their envs.
        cluster: on which they are.

    Raises:
        MissingExtra: when Ray is not installed.
        ConfigError: when there is no such cluster, or no node for a worker.
        WorkerError: when an env cannot be built.
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
        self.shares: list[Share] = []
        try:
            self._hire(recipes, ranges, options)
            self._agree(between_waits)
        except BaseException:
            self.close(terminate=True)
            raise

    def _hire(
        self, recipes: Sequence[EnvRecipe], ranges: Sequence[range], options: dict[str, Any]
    ) -> None:
        """Start all shares."""
        cluster, taken, num_cpus = self.cluster, 0.0, self.cluster.num_cpus_of_all()
        groups = _groups(self.num_workers, cluster.workers_per_node())
        env_ids = [range(ranges[g.start].start, ranges[g.stop - 1].stop) for g in groups]
        makers = [BatchMaker(EnvBatch, recipes[ids.start : ids.stop], ids.start) for ids in env_ids]
        specs = [pickled_spec(spec) for spec in make_specs(makers, None)]
        for workers, envs, spec in zip(groups, env_ids, specs, strict=True):
            told = {**options, "num_workers": len(workers)}
            share = Share(cluster, len(self.shares), envs, workers, spec, told)
            self.shares.append(share)
            share.hire(must_share=taken + share.num_cpus > num_cpus)
            taken += 0.0 if share.is_crowded else share.num_cpus

    def _agree(self, between_waits: Callable[[], None]) -> None:
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
        """End the shares; twice is fine."""
        _end(os.getpid(), self.shares, terminate)


def _groups(num_workers: int, most: int) -> list[range]:
    """Consecutive workers that share a node, in as few groups as there have to be."""
    return split(num_workers, -(-num_workers // most))


class Share:
    """One node share, as its caller sees it.

    Args:
        cluster: where it is.
        place: among all shares.
        env_ids: its envs.
        workers: its workers, among all.
        spec: what its envs are, pickled.
        options: of its `ProcessVectorEnv`.

    Attributes:
        env_ids, workers: as given.
        num_cpus: that it needs.
        node: on which it is; empty until it is there.
        pids: of its workers.
        is_crowded: whether it uses CPUs of others.
        attempt: how often it was hired anew.
        is_lost: whether the actor has gone.
        opened: comes once the envs are built.
        waiting: looks after it until then.
        under_way: the rollout that was asked for and has not come.
        statistics, telemetry: what it told last.
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
        self.is_crowded = False
        self.attempt = -1
        self.is_lost = False
        self.under_way: Any = None
        self.statistics = CollectorStatistics(0, 0)
        self.telemetry: Statistics | None = None
        self._num_pieces = 1
        self._ray = require_ray()
        self._cluster, self._spec, self._options = cluster, spec, options
        self._name = f"Node share {place} (envs {env_ids[0]}-{env_ids[-1]})"
        self._actor: Any = None

    def hire(self, must_share: bool) -> None:
        """Have an actor start the workers somewhere.

        Args:
            must_share: whether it takes the CPUs of others.
        """
        options = {**self._cluster.options, "num_cpus": self.num_cpus}
        self.is_crowded = must_share
        if self.is_crowded:
            warnings.warn(
                f"{self._name} needs {self.num_cpus:g} CPUs, and no node has so many free; it "
                "shares those of others until a node has",
                RuntimeWarning,
                stacklevel=2,
            )
            options["num_cpus"] = 0
        self.attempt, self.is_lost = self.attempt + 1, False
        self.node, self.under_way = "", None
        self._actor = self._cluster.hire(NodeShare, _GROUPS, options)
        self.waiting: Waiting = self._cluster.waiting(self._name, options)
        self._placed = self._actor.here.options(concurrency_group="leave").remote()
        self.opened = self._actor.open.remote(self._spec, self._options)

    def wait_for_spaces(self, between_waits: Callable[[], None]) -> tuple[Space[Any], Space[Any]]:
        """Wait until the envs are built, and return the spaces of one."""
        while not wait_for_any([self.opened], _LOOK_S):
            between_waits()
            self.waiting.look()
            if self.had_better_share():
                self.end(deadline=0.0)
                self.hire(must_share=True)
        self._take_opened()
        return self._spaces

    def had_better_share(self) -> bool:
        """Whether it had better take CPUs of others: not where only its envs take long to build."""
        return not wait_for_any([self._placed], 0.0) and self.waiting.had_better_share()

    def _take_opened(self) -> None:
        """Take in where the share is, once it is there."""
        opened = self.get(self.opened)
        self.node, spaces, self.pids = opened
        self._spaces: tuple[Space[Any], Space[Any]] = pickle.loads(spaces)

    def has_come(self) -> bool:
        """Whether it has found its place, and built its envs; tells the user if that takes long."""
        if not self.node and wait_for_any([self.opened], 0.0):
            self._take_opened()
        if not self.node:
            self.waiting.look()
        return bool(self.node)

    def begin(self, task: ShareTask, faults: FaultPolicy) -> None:
        """Have the policy act there."""
        self._cluster.require_session()
        self._actor.begin.remote(task, faults)

    def collect(self, weights: Any) -> None:
        """Begin a rollout; ``weights`` is a :class:`WeightSet`, or a reference to one."""
        self._cluster.require_session()
        count = self._num_pieces
        references = self._actor.collect.options(num_returns=count).remote(weights, count)
        self._pieces = [references] if count == 1 else references
        self.under_way = self._pieces[0]  # which come together

    def take(self) -> Collected:
        """Wait for the rollout."""
        collected: Collected = self.get(self._pieces if len(self._pieces) > 1 else self.under_way)
        self.under_way = None
        self.statistics = collected.statistics
        self.telemetry = collected.telemetry or self.telemetry
        count = -(-size_of(collected.rollout) // _MESSAGE_BYTES)
        self._num_pieces = count if count <= _MOST_PIECES else 1
        return collected

    def get(self, references: Any) -> Any:
        """What a call has returned, whole or in pieces.

        Raises:
            WorkerDied: when the actor, or its node, was lost.
            RookeryError: what happened there.
        """
        try:
            if not self._cluster.is_joined:
                raise self._ray.exceptions.RayError("Ray was shut down")
            answer = self._ray.get(references)
        except self._ray.exceptions.RayError as error:
            self.is_lost = True
            raise WorkerDied(
                f"{self._name} on node {self.node or 'unknown'} {in_words(error)}",
                env_ids=tuple(self.env_ids),
                command="collect",
            ) from error
        if isinstance(answer, list):
            answer = pickle.loads(b"".join(answer))
        if isinstance(answer, Failed):
            self.statistics = answer.statistics
            raise self._error(answer.failure)
        return answer

    def _error(self, failure: Failure) -> RookeryError:
        """The error that a failure stands for, with the ids that envs have in the collector."""
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
        """End the actor, gently until ``deadline``."""
        if self._actor is None or not self._cluster.is_joined:
            return
        if deadline:
            self._actor.leave.options(concurrency_group="leave").remote()
            closed = self._actor.close.remote()
            wait_for_any([closed], max(deadline - time.perf_counter(), 0.0))
        end_actor(self._actor, "leave")
        self._actor = None


class RayPool:
    """Has node shares fill rollouts, and waits for them; see `ActorPool`.

    Args:
        places: the shares; they are ended with the pool.
        policy: every worker gets a copy.
        shape: of the rollouts.
        between_waits: called ten times a second while shares are waited for; what it raises ends
            the wait.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        faults: whether shares that are lost are hired anew.

    Attributes:
        workers: the shares.
        shape: as given.
        absent: shares that are on their way to a node: what they had begun is lost.
        policy_s: seconds that a worker spent otherwise than stepping, in the mean.
        env_s: seconds that a worker spent stepping, in the mean.
    """

    def __init__(
        self,
        places: NodeShares,
        policy: Policy,
        shape: RolloutShape,
        between_waits: Callable[[], None],
        info_keys: tuple[str, ...] = (),
        faults: FaultPolicy | None = None,
    ) -> None:
        self.workers = places.shares
        self.shape = shape
        self.policy_s = self.env_s = 0.0
        self._ray = require_ray()
        self._places, self._policy, self._between_waits = places, policy, between_waits
        self._faults = faults or FaultPolicy()
        self._budgets = [RestartBudget(self._faults) for _ in self.workers]
        self._pickled, self._info_keys = by_value(policy), info_keys
        self._weights: Any = None
        self._version = 0
        self.absent: set[int] = set()
        self._doing: dict[int, int] = {}  # which buffer each share fills
        self._filled: dict[tuple[int, int], Rollout] = {}  # by first env and buffer
        self._anew: set[int] = set()  # shares whose next rollout begins with a reset
        self._lost = CollectorStatistics(0, 0)  # with shares that are gone
        self._looked = self._made_at = time.perf_counter()
        self._waited_s = 0.0
        self._finalizer = weakref.finalize(self, _end, os.getpid(), self.workers, False)

    def publish(self, version: int | None = None) -> None:
        """Have the workers act with the policy's present weights, from their next rollout on."""
        version = self._policy.current_version() if version is None else version
        if self._weights is not None and version == self._version:
            return
        model = self._policy.model
        parameters = None if model is None else model.parameters
        extras = None if model is None else model.extras()
        weights = WeightSet(version, parameters, extras)
        is_small = sum(array.nbytes for array in weights[1:] if array is not None) < _MESSAGE_BYTES
        # Either way as they are now: the learner changes them in place.
        self._weights = deepcopy(weights) if is_small else self._ray.put(weights)
        self._version = version

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Say how the envs are reset before the first rollout."""
        self._seeds = tuple(seeds)
        for index in range(len(self.workers)):
            self._begin_share(index)

    def begin(self, index: int, buffer: int) -> None:
        """Have a share fill a buffer, unless it has to go elsewhere first."""
        self._move_if_crowded(index)
        if index not in self.absent:
            self._doing[index] = buffer
            self.workers[index].collect(self._weights)

    def wait(self) -> list[int]:
        """Wait until a share has filled a rollout, or has come; return those that have filled one.

        Raises:
            WorkerDied: when a share was lost, and may not be hired anew.
        """
        awaited = {self.workers[i].under_way: i for i in self._doing}
        awaited |= {self.workers[i].opened: i for i in self.absent}
        began = time.perf_counter()
        ready: list[Any] = []
        while not ready:
            ready = wait_for_any(list(awaited), _LOOK_S)
            self._between_waits()
            if self._look_after_absent():
                break
        self._waited_s += time.perf_counter() - began
        places = [awaited[reference] for reference in ready]
        return [index for index in places if index in self._doing]

    def finish(self, index: int) -> Report | None:
        """Take the rollout of a share; None if it was lost, and the share is absent now."""
        share = self.workers[index]
        try:
            collected = share.take()
        except WorkerError as error:
            self._lose(index, error)
            return None
        rollout = collected.rollout
        rollout.env_ids = rollout.env_ids + share.env_ids.start
        if index in self._anew:
            self._anew.discard(index)
            rollout.after_reset = np.ones_like(rollout.after_reset)
        self._filled[share.env_ids.start, self._doing.pop(index)] = rollout
        weight = len(share.workers) / self._places.num_workers
        self.policy_s += collected.policy_s * weight
        self.env_s += collected.env_s * weight
        return Report(None, collected.policy_s, collected.env_s)

    def collect(self, buffer: int) -> Rollout:
        """Have all shares fill a rollout, and put their parts side by side."""
        missing = set(range(len(self.workers)))
        while missing:
            for index in missing - self.absent - self._doing.keys():
                self.begin(index, buffer)
            missing -= {index for index in self.wait() if self.finish(index) is not None}
        parts = [self.rollout_of(buffer, slice(s.env_ids.start, None)) for s in self.workers]
        return side_by_side(parts)

    def rollout_of(self, buffer: int, envs: slice) -> Rollout:
        """The rollout of a share that begins with some env, once: it is given away."""
        return self._filled.pop((envs.start, buffer))

    def statistics(self) -> CollectorStatistics:
        """What faults have cost so far."""
        restarts, lost_rows = self._lost.restarts, self._lost.lost_rows
        for share in self.workers:
            restarts += share.statistics.restarts
            lost_rows += share.statistics.lost_rows
        return CollectorStatistics(restarts, lost_rows)

    def telemetry(self, looks: bool = True) -> Statistics:
        """What workers and envs did and use, as they told last."""
        told = None
        for share in self.workers:
            own = share.telemetry
            if own is None:
                continue
            backends = tuple(replace(backend, node=share.node) for backend in own.workers)
            own = replace(own, workers=backends)
            told = own if told is None else told.beside(own)
        seconds = time.perf_counter() - self._made_at
        if told is None:
            return Statistics(0, 0, (), seconds=seconds)
        caller = replace(told.caller, waited_s=self._waited_s)
        return replace(told, caller=caller, seconds=seconds)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers, on their nodes."""
        return self._places.pids

    def close(self) -> None:
        """Stop the shares where they are, and close the envs."""
        self._finalizer()

    # ---------------------------------------------------------------- shares that come and go

    def _begin_share(self, index: int) -> None:
        """Have the policy act in a share that was hired."""
        share, total = self.workers[index], self._places.num_workers
        seeds = self._seeds[share.env_ids.start : share.env_ids.stop]
        if share.attempt:
            seeds = tuple(derived_seed(seed, share.attempt) for seed in seeds)
        # Actors that take the place of others draw other numbers; within a share, workers do.
        task = ShareTask(
            policy=self._pickled,
            num_steps=self.shape.num_steps,
            memory_size=self.shape.memory_size,
            info_keys=self._info_keys,
            first_stream=share.workers.start + share.attempt * total * _STREAMS_APART,
            num_streams=total,
            seeds=seeds,
        )
        share.begin(task, self._faults)

    def _look_after_absent(self) -> bool:
        """Take in shares that have come, and have those take others' CPUs that wait too long.

        Returns:
            Whether anything has changed.
        """
        for index in list(self.absent):
            share = self.workers[index]
            try:
                if share.has_come():
                    self.absent.discard(index)
                    self._begin_share(index)
                    return True
            except WorkerError as error:
                self._lose(index, error)
                return True
            if share.had_better_share():
                share.end(deadline=0.0)
                self._hire_anew(index, must_share=True)
                return True
        return False

    def _lose(self, index: int, error: WorkerError) -> None:
        """Hire a share anew, if that is allowed; else raise the error."""
        share = self.workers[index]
        if not share.is_lost:
            raise error  # it was told by the share, which has replaced workers as often as it may
        self._budgets[index].spend(error)
        rows = self.shape.num_steps * len(share.env_ids) if share.under_way is not None else 0
        self._count_in(share, restarts=1, lost_rows=rows)
        share.end(deadline=0.0)
        self._hire_anew(index)

    def _count_in(self, share: Share, restarts: int = 0, lost_rows: int = 0) -> None:
        """Keep in mind what faults have cost in an actor that is about to go."""
        before, own = self._lost, share.statistics
        self._lost = CollectorStatistics(
            before.restarts + own.restarts + restarts, before.lost_rows + own.lost_rows + lost_rows
        )
        share.statistics = CollectorStatistics(0, 0)

    def _hire_anew(self, index: int, must_share: bool = False) -> None:
        self._doing.pop(index, None)
        self.absent.add(index)
        self._anew.add(index)
        self.workers[index].hire(must_share=must_share)

    def _move_if_crowded(self, index: int) -> None:
        """Between two rollouts, move a share to CPUs of its own if a node has come that has them.

        It costs the episodes under way, of which no row is lost.
        """
        share, now = self.workers[index], time.perf_counter()
        if not share.is_crowded or not share.node or now - self._looked < _REPLACE_LOOK_S:
            return
        self._looked = now
        if self._places.cluster.shares_cpus(share.num_cpus):
            return
        self._count_in(share)
        share.end(time.perf_counter() + _CLOSE_S)
        self._hire_anew(index)


_STREAMS_APART = 1000  # more than a worker is replaced


def _end(owner_pid: int, shares: Sequence[Share], terminate: bool) -> None:
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    deadline = 0.0 if terminate else time.perf_counter() + _CLOSE_S
    for share in shares:
        share.end(deadline)
