"""NodeShare: some workers of a collector that live on one node, and collect there together.

What is one process per collector on one machine is one actor per node share on a cluster: it keeps
worker processes of its node, over shared memory there, and hands out whole rollouts.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.cluster.ray_cluster import be_like_the_caller, this_node
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

_TELL_S = 1.0  # between two accounts of what envs and processes did


class WeightSet(NamedTuple):
    """One version of a policy's weights, as it travels.

    Attributes:
        version: of the policy.
        parameters: float32 ``[size]``; None for a policy that never changes.
        extras: float64 ``[E]``, what travels beside them.
    """

    version: int
    parameters: npt.NDArray[np.float32] | None
    extras: npt.NDArray[np.float64] | None


class ShareTask(NamedTuple):
    """What a node share is to do.

    Attributes:
        policy: acts; pickled, since every share has a copy.
        num_steps: steps of every env in a rollout, ``T``.
        memory_width: see :class:`RolloutShape`.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        first_stream: of random numbers, for the first worker.
        num_streams: of all workers together; a worker that is replaced goes on with others.
        seeds: of the first reset.
    """

    policy: bytes
    num_steps: int
    memory_width: int
    info_keys: tuple[str, ...]
    first_stream: int
    num_streams: int
    seeds: tuple[int | None, ...]


class Collected(NamedTuple):
    """What a share tells of a rollout.

    Attributes:
        rollout: of its envs, whose ids count from 0.
        policy_s: seconds that a worker spent otherwise than stepping, in the mean.
        env_s: seconds that a worker spent stepping, in the mean.
        statistics: what faults have cost so far, there.
        telemetry: what envs and processes did, now and then.
    """

    rollout: Rollout
    policy_s: float
    env_s: float
    statistics: CollectorStatistics
    telemetry: Statistics | None


class Failed(NamedTuple):
    """What a share tells when it can do no more.

    Attributes:
        failure: what happened.
        statistics: what faults have cost until then.
    """

    failure: Failure
    statistics: CollectorStatistics


class NodeShare:
    """Worker processes of one node, in which copies of a policy act.

    Every method returns a :class:`Failed` in place of raising what rookery raises, for such errors
    travel as those of any worker do.

    Args:
        version: see :func:`~rookery.cluster.ray_cluster.be_like_the_caller`.
        folders: likewise.
    """

    def __init__(self, version: str, folders: list[str]) -> None:
        be_like_the_caller(version, folders)
        self._venv: ProcessVectorEnv | None = None
        self._pool: ActorPool | None = None
        self._failed: Failed | None = None
        self._told = 0.0

    def open(self, spec: bytes, options: dict[str, Any]) -> Any:
        """Start the workers.

        Args:
            spec: a :class:`WorkerSpec` that says what the envs are, pickled.
            options: of :class:`ProcessVectorEnv`.

        Returns:
            The node, the spaces of one env (pickled), and the processes.
        """
        return self._guarded(lambda: self._open(spec, options))

    def begin(self, task: ShareTask, faults: FaultPolicy) -> Any:
        """Have the policy act in the workers, and reset the envs."""
        return self._guarded(lambda: self._begin(task, faults))

    def collect(self, weights: WeightSet, num_pieces: int) -> Any:
        """Fill a rollout under some weights.

        Returns:
            Collected; where several pieces are asked for, that many parts of its pickle.
        """
        collected = self._guarded(lambda: self._collect(weights))
        if num_pieces == 1:
            return collected
        data = pickle.dumps(collected, pickle.HIGHEST_PROTOCOL)
        size = -(-len(data) // num_pieces)
        return [data[i * size : (i + 1) * size] for i in range(num_pieces)]

    def here(self) -> None:
        """Answer as soon as there is a process."""

    def leave(self) -> None:
        """Have workers leave what they are doing; called by a thread of its own."""
        forget_all_names()
        pool = self._pool
        if pool is not None:
            pool.leave()

    def close(self) -> None:
        """Close the envs."""
        try:
            if self._pool is not None:
                self._pool.close()
            elif self._venv is not None:
                self._venv.close()
        except RookeryError:  # of an env that nobody waits for any more
            return

    def _guarded(self, function: Callable[[], Any]) -> Any:
        if self._failed is None:
            try:
                return function()
            except Exception as error:
                pool = self._pool
                cost = CollectorStatistics(0, 0) if pool is None else pool.statistics()
                self._failed = Failed(Failure.of(error), cost)
        return self._failed

    def _open(self, told: bytes, options: dict[str, Any]) -> tuple[str, bytes, tuple[int, ...]]:
        spec: WorkerSpec = pickle.loads(told)
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
        if now - self._told > _TELL_S:
            self._told, telemetry = now, pool.telemetry()
        return Collected(
            rollout=rollout,
            policy_s=pool.policy_s - policy_s,
            env_s=pool.env_s - env_s,
            statistics=pool.statistics(),
            telemetry=telemetry,
        )
