"""RayPool: collects rollouts from node shares of a Ray cluster, as `ActorPool` from processes."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from rookery.cluster.node_share import ShareTask, WeightSet
from rookery.cluster.ray_actors import wait_for_any
from rookery.cluster.ray_session import require_ray
from rookery.cluster.share_handle import MESSAGE_BYTES, NodeShares, ShareHandle, end_shares
from rookery.collect.actor import ActorReport
from rookery.collect.base import CollectorStatistics
from rookery.collect.rollout_buffers import RolloutShape
from rookery.common.pickling import by_value
from rookery.common.seeding import derived_seed
from rookery.errors import WorkerError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.rollout.rollout import side_by_side
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.fault_policy import FaultPolicy, RestartBudget

_LOOK_S = 0.1
_CLOSE_S = 5.0
_STREAMS_APART = 1000  # more than the restarts of a worker
_FREE_CPUS_LOOK_S = 2.0  # time between two checks for free CPUs


class RayPool:
    """Collects rollouts from node shares; see `ActorPool`.

    Args:
        places: the shares. They are ended with the pool.
        policy: policy; every worker gets a copy.
        shape: shape of the rollouts.
        between_waits: called ten times a second while shares are awaited. An exception ends the
            waiting.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        faults: decides whether lost shares are restarted.

    Attributes:
        workers: the shares.
        shape: shape of the rollouts.
        absent: indices of the shares that are restarting. Their unfinished rollouts are lost.
        policy_s: mean seconds per worker without stepping.
        env_s: mean seconds per worker of stepping.
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
        self._doing: dict[int, int] = {}  # by share, the buffer that it fills
        self._filled: dict[tuple[int, int], Rollout] = {}  # by first env and buffer
        # Restarted shares; their next rollout begins with a reset.
        self._after_restart: set[int] = set()
        self._lost = CollectorStatistics(0, 0)  # cost of faults in actors that are gone
        self._looked = self._made_at = time.perf_counter()
        self._waited_s = 0.0
        self._finalizer = weakref.finalize(self, end_shares, os.getpid(), self.workers, False)

    def publish(self, version: int | None = None) -> None:
        """Let the workers act with the policy's current weights from their next rollout on."""
        version = self._policy.current_version() if version is None else version
        if self._weights is not None and version == self._version:
            return
        model = self._policy.model
        parameters = None if model is None else model.parameters
        extras = None if model is None else model.extras()
        weights = WeightSet(version, parameters, extras)
        is_small = sum(array.nbytes for array in weights[1:] if array is not None) < MESSAGE_BYTES
        # A copy in both cases, because the learner changes the weights in place.
        self._weights = deepcopy(weights) if is_small else self._ray.put(weights)
        self._version = version

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Set the seeds of the reset before the first rollout."""
        self._seeds = tuple(seeds)
        for index in range(len(self.workers)):
            self._begin_share(index)

    def begin(self, index: int, buffer: int) -> None:
        """Let a share fill a buffer, unless it is moved to another node first."""
        self._move_if_sharing_cpus(index)
        if index not in self.absent:
            self._doing[index] = buffer
            self.workers[index].collect(self._weights)

    def wait(self) -> list[int]:
        """Wait until a share has filled a buffer or has restarted; return those that filled one.

        Raises:
            WorkerDied: a share was lost, and may not be restarted.
        """
        awaited = {self.workers[i].pending: i for i in self._doing}
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

    def finish(self, index: int) -> ActorReport | None:
        """Take the rollout of a share. Return None if the share was lost and is now absent."""
        share = self.workers[index]
        try:
            collected = share.take()
        except WorkerError as error:
            self._lose(index, error)
            return None
        rollout = collected.rollout
        rollout.env_ids = rollout.env_ids + share.env_ids.start
        if index in self._after_restart:
            self._after_restart.discard(index)
            rollout.after_reset = np.ones_like(rollout.after_reset)
        self._filled[share.env_ids.start, self._doing.pop(index)] = rollout
        weight = len(share.workers) / self._places.num_workers
        self.policy_s += collected.policy_s * weight
        self.env_s += collected.env_s * weight
        return ActorReport(None, collected.policy_s, collected.env_s)

    def collect(self, buffer: int) -> Rollout:
        """Let all shares fill a buffer, and join their rollouts side by side."""
        missing = set(range(len(self.workers)))
        while missing:
            for index in missing - self.absent - self._doing.keys():
                self.begin(index, buffer)
            missing -= {index for index in self.wait() if self.finish(index) is not None}
        parts = [self.rollout_of(buffer, slice(s.env_ids.start, None)) for s in self.workers]
        return side_by_side(parts)

    def rollout_of(self, buffer: int, envs: slice) -> Rollout:
        """Return the rollout of the share that begins with env ``envs.start``, and forget it."""
        return self._filled.pop((envs.start, buffer))

    def statistics(self) -> CollectorStatistics:
        """Return the cost of faults so far."""
        restarts, lost_rows = self._lost.restarts, self._lost.lost_rows
        for share in self.workers:
            restarts += share.statistics.restarts
            lost_rows += share.statistics.lost_rows
        return CollectorStatistics(restarts, lost_rows)

    def telemetry(self, looks: bool = True) -> Statistics:
        """Return statistics of workers and envs, as the shares reported them last."""
        total = None
        for share in self.workers:
            own = share.telemetry
            if own is None:
                continue
            backends = tuple(replace(backend, node=share.node) for backend in own.workers)
            own = replace(own, workers=backends)
            total = own if total is None else total.beside(own)
        seconds = time.perf_counter() - self._made_at
        if total is None:
            return Statistics(0, 0, (), seconds=seconds)
        caller = replace(total.caller, waited_s=self._waited_s)
        return replace(total, caller=caller, seconds=seconds)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers, on their nodes."""
        return self._places.pids

    def close(self) -> None:
        """Stop the workers on all nodes, even during a rollout, and close the envs."""
        self._finalizer()

    # ---------------------------------------------------------------- shares that come and go

    def _begin_share(self, index: int) -> None:
        """Start the policy in a share."""
        share, total = self.workers[index], self._places.num_workers
        seeds = self._seeds[share.env_ids.start : share.env_ids.stop]
        if share.attempt:
            seeds = tuple(derived_seed(seed, share.attempt) for seed in seeds)
        # A restarted share uses other streams of random numbers than before.
        task = ShareTask(
            policy=self._pickled,
            num_steps=self.shape.num_steps,
            memory_width=self.shape.memory_width,
            info_keys=self._info_keys,
            first_stream=share.workers.start + share.attempt * total * _STREAMS_APART,
            num_streams=total,
            seeds=seeds,
        )
        share.begin(task, self._faults)

    def _look_after_absent(self) -> bool:
        """Continue with shares that have restarted, and let those share CPUs that wait too long.

        Returns:
            True if anything has changed.
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
            if share.should_share_cpus():
                share.end(deadline=0.0)
                self._restart(index, must_share=True)
                return True
        return False

    def _lose(self, index: int, error: WorkerError) -> None:
        """Restart a lost share if that is allowed, otherwise raise the error."""
        share = self.workers[index]
        if not share.is_lost:
            raise error  # the share runs, but it may not restart its workers again
        self._budgets[index].spend(error)
        rows = self.shape.num_steps * len(share.env_ids) if share.pending is not None else 0
        self._add_cost(share, restarts=1, lost_rows=rows)
        share.end(deadline=0.0)
        self._restart(index)

    def _add_cost(self, share: ShareHandle, restarts: int = 0, lost_rows: int = 0) -> None:
        """Add the cost of faults in an actor that is about to be ended."""
        before, own = self._lost, share.statistics
        self._lost = CollectorStatistics(
            before.restarts + own.restarts + restarts, before.lost_rows + own.lost_rows + lost_rows
        )
        share.statistics = CollectorStatistics(0, 0)

    def _restart(self, index: int, must_share: bool = False) -> None:
        self._doing.pop(index, None)
        self.absent.add(index)
        self._after_restart.add(index)
        self.workers[index].start(must_share=must_share)

    def _move_if_sharing_cpus(self, index: int) -> None:
        """Move a share that shares CPUs if enough CPUs are free now. Called between two rollouts.

        The current episodes are cut short, but no transition is lost.
        """
        share, now = self.workers[index], time.perf_counter()
        if not share.is_sharing_cpus or not share.node or now - self._looked < _FREE_CPUS_LOOK_S:
            return
        self._looked = now
        if self._places.cluster.lacks_free_cpus(share.num_cpus):
            return
        self._add_cost(share)
        share.end(time.perf_counter() + _CLOSE_S)
        self._restart(index)
