"""RayVectorEnv: a vector env with worker processes on the nodes of a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.cluster.ray_cluster import Cluster
from rookery.cluster.ray_worker import RayArrays, RayWorker
from rookery.common.arguments import whole_number
from rookery.env.recipe import EnvRecipe
from rookery.shared.row_buffer import RowShape
from rookery.vector.agreement import ObservationMode, parse_autoreset_mode
from rookery.vector.base import VectorEnv
from rookery.vector.serial import as_recipes
from rookery.vector.specs import remote_specs, split
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.wait.thread_event import ThreadEvent
from rookery.worker.worker_backend import WorkerBackend, assign_all

_START_GRACE_S = 1.0


class RayVectorEnv(VectorEnv):
    """A vector env with its envs on the nodes of a Ray cluster.

    Use it for envs that need more than one machine. Each worker is a process as with
    ``backend="process"``. An actor of Ray on the same node passes messages between the process and
    the caller. Faults are handled as with processes: if a node is lost, its workers have died, and
    with ``on_fault="restart"`` they are restarted on another node. Trajectories do not depend on
    the backend.

    A step costs a message in each direction, about a millisecond. Faster envs are stepped faster by
    the processes of one machine. For training, use `rookery.WorkerCollector` with
    ``backend="ray"``, which collects whole rollouts next to the envs.

    Install on the nodes the packages that envs need, or pass a ``runtime_env``. If this class
    starts Ray itself, Ray runs until this process exits.

    Args:
        env_fns: one callable, env id, EnvSpec or recipe per env.
        copy: False returns views, valid until the step after the next.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        num_workers: number of workers, at most one per env. None means as many as the cluster has
            room for.
        threads_per_worker: limit of the threads of numerical libraries; None sets no limit.
        faults: what to do when an env raises or hangs, or a worker or node is lost.
        ray_options: see `rookery.make_vec`.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: the cluster cannot be joined, or no node can run a worker.
        PicklingError: an env's recipe cannot be pickled.
        EnvFailed: an env cannot be built.
        WorkerDied: a worker exits before its envs are built.
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
        most = None
        if num_workers is not None:
            most = min(whole_number("num_workers", num_workers, 1), len(recipes))
        ranges = split(len(recipes), most or 1)
        specs = remote_specs(recipes, ranges)
        cluster = Cluster(ray_options, most)
        cluster.require_place()
        if most is None:
            ranges = split(len(recipes), min(cluster.capacity(), len(recipes)))
            specs = remote_specs(recipes, ranges)
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
        """Wait until the workers have built their envs, and assign their parts of the arrays."""
        descriptions = [backend.describe() for backend in backends]
        parts = [backend.env_ids for backend in backends]
        spaces = self._agree(parts, descriptions, mode, observation_mode, copy, faults.restarts)
        self._shared = shared = RayArrays(spaces, len(backends))
        assign_all(backends, spaces, mode, shared, shared.arrays, shared.orders)
        self._ready(backends, shared.arrays, shared.orders, copy, arrivals)
        self._arrays.pickle_main_by_value()

    def _enlarge_rows(self, shape: RowShape) -> None:
        self._shared.enlarge_rows(shape)
        for backend in self._backends:
            backend.adopt_larger_rows(shape)
