"""RayVectorEnv: envs in worker processes on the nodes of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.cluster.ray_cluster import Cluster
from rookery.cluster.ray_worker import RayBoard, RayWorker
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.errors import ConfigError
from rookery.shared.slab import SlabShape
from rookery.vector.agreement import ObservationMode, num_buffers, parse_autoreset_mode
from rookery.vector.base import VectorEnv
from rookery.vector.serial import as_recipes
from rookery.vector.specs import make_specs, pickled_spec, split
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.protocol import BatchMaker
from rookery.worker.wait.thread_event import ThreadEvent
from rookery.worker.worker_backend import WorkerBackend, assign_all

_START_GRACE_S = 1.0


class RayVectorEnv(VectorEnv):
    """A vector env whose envs live on the nodes of a Ray cluster.

    For envs that need more than one machine. Each worker is a process like those of
    ``backend="process"``, with an actor of Ray beside it that passes on what it is told, so faults
    are dealt with in the same way: a node that is lost is a worker that has died, or that is
    replaced on another node. Trajectories are those of every other backend.

    A step costs a message each way, about a millisecond: envs that take less are stepped faster in
    one machine's processes, and training collects whole rollouts where the envs are, by
    `rookery.WorkerCollector` with ``backend="ray"``.

    Ray's environment is that of the nodes: what envs need must be installed there, or come with a
    ``runtime_env``. A Ray that was started here runs until this process ends.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes).
        copy: False returns views, valid until the step after the next.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        num_workers: workers; None means as many as the cluster has room for, and one per env at
            most.
        threads_per_worker: cap on the threads of numerical libraries; None leaves them alone.
        faults: what happens when an env raises, hangs, or a worker or node is lost.
        ray_options: see `rookery.make_vec`.

    Raises:
        MissingExtra: when Ray is not installed.
        ConfigError: when there is no such cluster, or no node that could run a worker.
        PicklingError: when an env's recipe cannot travel.
        EnvFailed: when an env cannot be built.
        WorkerDied: when a worker ends before its envs are built.
    """

    backend = "ray"

    def __init__(
        self,
        env_fns: Sequence[Callable[..., Any] | EnvRecipe],
        copy: bool = True,
        *,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        num_workers: int | None = None,
        threads_per_worker: int | None = 1,
        faults: FaultPolicy | None = None,
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        faults = faults or FaultPolicy()
        mode = parse_autoreset_mode(autoreset_mode)
        recipes = as_recipes(env_fns)
        if num_workers is not None and num_workers < 1:
            raise ConfigError(f"num_workers must be at least 1, got {num_workers}")
        most = None if num_workers is None else min(num_workers, len(recipes))
        makers_of = partial(_makers, recipes)
        specs = [pickled_spec(spec) for spec in make_specs(makers_of(most or 1), None)]
        cluster = Cluster(ray_options, most)
        cluster.require_place()
        if most is None:
            makers = makers_of(min(cluster.capacity(), len(recipes)))
            specs = [pickled_spec(spec) for spec in make_specs(makers, None)]
        ranges = split(len(recipes), len(specs))
        arrivals = ThreadEvent()
        backends: list[WorkerBackend] = []
        try:
            for ids, spec in zip(ranges, specs, strict=True):
                start = partial(
                    RayWorker,
                    cluster,
                    spec,
                    threads_per_worker,
                    f"rookery-{ids.start}",
                    arrivals,
                    faults.has_deadline,
                )
                backends.append(WorkerBackend(start, ids, recipes[ids.start].name, faults))
            self._assemble(backends, mode, observation_mode, copy, faults, arrivals)
        except BaseException:
            deadline = time.perf_counter() + _START_GRACE_S
            for backend in backends:
                backend.stop(deadline)
            raise

    def _assemble(
        self,
        backends: Sequence[WorkerBackend],
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        faults: FaultPolicy,
        arrivals: ThreadEvent,
    ) -> None:
        """Wait for the workers' envs, and give everybody their part of the arrays."""
        descriptions = [backend.describe() for backend in backends]
        parts = [backend.env_ids for backend in backends]
        buffers = num_buffers(copy, faults)
        spaces = self._agree(parts, descriptions, mode, observation_mode, buffers)
        self._board = board = RayBoard(spaces, len(backends))
        assign_all(backends, spaces, mode, board, board.arrays, board.orders)
        self._ready(backends, board.arrays, board.orders, copy, arrivals)
        self._arrays.pickle_main_by_value()

    def _grow_slab(self, shape: SlabShape) -> None:
        self._board.enlarge_slab(shape)
        for backend in self._backends:
            backend.adopt_slab(shape)


def _makers(recipes: Sequence[EnvRecipe], count: int) -> list[BatchMaker]:
    """What builds the envs of each of so many workers."""
    ranges = split(len(recipes), count)
    return [BatchMaker(EnvBatch, recipes[ids.start : ids.stop], ids.start) for ids in ranges]
