"""NodeShare: an actor with some workers of a collector, which collect together on one node.

On one machine a collector has one pool of worker processes. On a cluster it has one actor per node
share. The actor runs worker processes on its node, shares memory with them, and returns whole
rollouts.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.cluster.ray_actors import match_caller, this_node
from rookery.collect.actor_pool import ActorPool
from rookery.collect.base import CollectorStatistics
from rookery.collect.rollout_buffers import RolloutShape
from rookery.common.pickling import by_value
from rookery.env import registrations
from rookery.errors import RookeryError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.failures import Failure
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.protocol import WorkerSpec
from rookery.worker.wait.event import forget_all_names

_TELEMETRY_S = 1.0  # time between two reports of telemetry


class WeightSet(NamedTuple):
    """One version of a policy's weights.

    Attributes:
        version: version of the policy.
        parameters: float32 ``[size]``; None for a policy that never changes.
        extras: float64 ``[E]``, the extras of the policy's model; None for a policy that never
            changes.
    """

    version: int
    parameters: npt.NDArray[np.float32] | None
    extras: npt.NDArray[np.float64] | None


class ShareTask(NamedTuple):
    """The task of a node share.

    Attributes:
        policy: the pickled policy; every share has a copy.
        num_steps: steps of every env in a rollout, ``T``.
        memory_width: see :class:`RolloutShape`.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        first_stream: stream of random numbers of the first worker.
        num_streams: number of streams of all workers together. A worker that replaces another one
            uses other streams.
        seeds: seeds of the first reset.
    """

    policy: bytes
    num_steps: int
    memory_width: int
    info_keys: tuple[str, ...]
    first_stream: int
    num_streams: int
    seeds: tuple[int | None, ...]


class Collected(NamedTuple):
    """A rollout of a node share.

    Attributes:
        rollout: rollout of the share's envs; their ids count from 0.
        policy_s: mean seconds per worker without stepping.
        env_s: mean seconds per worker of stepping.
        statistics: cost of faults in this share so far.
        telemetry: statistics of envs and processes, about once a second, otherwise None.
    """

    rollout: Rollout
    policy_s: float
    env_s: float
    statistics: CollectorStatistics
    telemetry: Statistics | None


class ShareFailed(NamedTuple):
    """The error with which a share has stopped.

    Attributes:
        failure: the error.
        statistics: cost of faults in this share until then.
    """

    failure: Failure
    statistics: CollectorStatistics


class NodeShare:
    """Worker processes of one node in which copies of a policy act.

    `open`, `begin` and `collect` return a :class:`ShareFailed` instead of raising.

    Args:
        version: version of the caller's rookery.
        folders: folders in which the caller finds modules.
    """

    def __init__(self, version: str, folders: list[str]) -> None:
        match_caller(version, folders)
        self._venv: ProcessVectorEnv | None = None
        self._pool: ActorPool | None = None
        self._failed: ShareFailed | None = None
        self._telemetry_at = 0.0

    def open(self, spec: bytes, options: dict[str, Any]) -> Any:
        """Start the workers.

        Args:
            spec: the pickled :class:`WorkerSpec` of the envs.
            options: options of :class:`ProcessVectorEnv`.

        Returns:
            The node, the pickled spaces of one env, and the process ids.
        """
        return self._guarded(lambda: self._open(spec, options))

    def begin(self, task: ShareTask, faults: FaultPolicy) -> Any:
        """Start the policy in the workers, and set the seeds of the first reset."""
        return self._guarded(lambda: self._begin(task, faults))

    def collect(self, weights: WeightSet, num_pieces: int) -> Any:
        """Collect a rollout with these weights.

        Returns:
            A Collected. With several pieces, its pickle cut into that many parts.
        """
        collected = self._guarded(lambda: self._collect(weights))
        if num_pieces == 1:
            return collected
        data = pickle.dumps(collected, pickle.HIGHEST_PROTOCOL)
        size = -(-len(data) // num_pieces)
        return [data[i * size : (i + 1) * size] for i in range(num_pieces)]

    def ping(self) -> None:
        """Return as soon as the actor has a process."""

    def leave(self) -> None:
        """Interrupt the workers and remove names from the system. Called by a separate thread."""
        forget_all_names()
        pool = self._pool
        if pool is not None:
            pool.leave()

    def close(self) -> None:
        """Close the envs."""
        with suppress(RookeryError):  # of an env, when its result is no longer needed
            if self._pool is not None:
                self._pool.close()
            elif self._venv is not None:
                self._venv.close()

    def _guarded(self, function: Callable[[], Any]) -> Any:
        if self._failed is None:
            try:
                return function()
            except Exception as error:
                pool = self._pool
                cost = CollectorStatistics(0, 0) if pool is None else pool.statistics()
                self._failed = ShareFailed(Failure.of(error), cost)
        return self._failed

    def _open(
        self, spec_bytes: bytes, options: dict[str, Any]
    ) -> tuple[str, bytes, tuple[int, ...]]:
        spec: WorkerSpec = pickle.loads(spec_bytes)
        registrations.install(spec.registrations)
        self._venv = venv = ProcessVectorEnv(spec.make_batch.recipes, **options)
        spaces = venv.single_observation_space, venv.single_action_space
        return this_node(), by_value(spaces), venv.pids

    def _begin(self, task: ShareTask, faults: FaultPolicy) -> None:
        venv = self._venv
        assert venv is not None
        policy: Policy = pickle.loads(task.policy)
        spaces = venv.single_observation_space, venv.single_action_space
        size = task.memory_width
        shape = RolloutShape(*spaces, venv.num_envs, task.num_steps, memory_width=size)
        self._policy, self._buffer = policy, -1
        self._pool = ActorPool(
            venv,
            policy,
            shape,
            lambda: None,
            task.info_keys,
            faults,
            streams=(task.first_stream, task.num_streams),
        )
        self._seeds: Sequence[int | None] | None = task.seeds

    def _collect(self, weights: WeightSet) -> Collected:
        pool, model = self._pool, self._policy.model
        assert pool is not None
        if model is not None:
            model.parameters[...] = weights.parameters
            model.set_extras(weights.extras)  # type: ignore[arg-type]
        pool.publish(weights.version)
        if self._seeds is not None:
            pool.reset(self._seeds)
            self._seeds = None
        self._buffer = (self._buffer + 1) % pool.shape.num_buffers
        policy_s, env_s = pool.policy_s, pool.env_s
        rollout = pool.collect(self._buffer)
        now = time.perf_counter()
        telemetry = None
        if now - self._telemetry_at > _TELEMETRY_S:
            self._telemetry_at, telemetry = now, pool.telemetry()
        return Collected(
            rollout=rollout,
            policy_s=pool.policy_s - policy_s,
            env_s=pool.env_s - env_s,
            statistics=pool.statistics(),
            telemetry=telemetry,
        )
