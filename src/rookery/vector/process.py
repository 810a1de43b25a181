"""Vector envs with worker processes and shared memory; each worker runs several envs."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from gymnasium.vector import AutoresetMode

from rookery.common.arguments import whole_number
from rookery.common.cpus import usable_cpus
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.env.seam import Batch
from rookery.errors import ConfigError
from rookery.shared.row_buffer import RowShape
from rookery.vector.agreement import ObservationMode, parse_autoreset_mode
from rookery.vector.backend import Backend
from rookery.vector.base import VectorEnv
from rookery.vector.serial import LocalBackend, as_recipes
from rookery.vector.specs import make_specs, pickled_spec, split
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.process import WorkerProcess
from rookery.worker.protocol import BatchMaker, WorkerSpec
from rookery.worker.shared_arrays import SharedArrays
from rookery.worker.start.launch import check_fork, resolve_start_method, thread_variables
from rookery.worker.wait.event import Arrivals
from rookery.worker.worker_backend import WorkerBackend, assign_all

_START_GRACE_S = 1.0


class ProcessVectorEnv(VectorEnv):
    """A vector env that steps its envs in worker processes, and shares arrays with them.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes).
        shared_memory: ignored, for compatibility with Gymnasium; arrays are always shared.
        copy: False returns views, valid until the step after the next.
        context: start method; Gymnasium's name for ``start_method``.
        daemon: ignored, for compatibility with Gymnasium; workers exit with the caller, and may
            have child processes.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        num_workers: number of worker processes, at most one per env; None means one per usable
            CPU, and one fewer with ``caller_steps``.
        start_method: ``"forkserver"``, ``"spawn"`` or ``"fork"``; None means the best one for this
            platform.
        isolate: one env per worker, and none in the calling process.
        caller_steps: the calling process steps some of the envs.
        threads_per_worker: maximum number of threads of numerical libraries in each worker; None
            sets no limit.
        faults: handling of envs that raise, hang or crash.
        preload: modules that a forkserver imports once for all workers.

    Raises:
        PicklingError: an env's recipe cannot be pickled.
        EnvFailed: an env cannot be built.
        WorkerDied: a worker exited before its envs were built.
    """

    backend = "process"

    def __init__(
        self,
        env_fns: Sequence[Callable[..., Any] | EnvRecipe],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        *,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        num_workers: int | None = None,
        start_method: str | None = None,
        isolate: bool = False,
        caller_steps: bool = False,
        threads_per_worker: int | None = 1,
        faults: FaultPolicy | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        faults = faults or FaultPolicy()
        if caller_steps and (faults.restarts or faults.has_deadline):
            raise ConfigError(
                "caller_steps=True runs envs in this process, where they cannot be killed at a "
                "deadline or restarted; this FaultPolicy needs caller_steps=False"
            )
        mode = parse_autoreset_mode(autoreset_mode)
        method = resolve_start_method(start_method or context)
        if method == "fork":
            check_fork()
        recipes = as_recipes(env_fns)
        num_workers = _count_workers(len(recipes), num_workers, isolate, caller_steps)
        ranges = split(len(recipes), num_workers + caller_steps)
        local, remote = (ranges[0], ranges[1:]) if caller_steps else (None, ranges)
        makers = [BatchMaker(EnvBatch, recipes[ids.start : ids.stop], ids.start) for ids in remote]
        local_maker = None
        if local is not None:
            local_maker = BatchMaker(EnvBatch, recipes[local.start : local.stop], 0)
        workers = _Workers(method, threads_per_worker, faults, tuple(preload))
        self._open(remote, makers, local_maker, workers, mode, observation_mode, copy)

    @classmethod
    def of_batches(
        cls,
        ranges: Sequence[range],
        makers: Sequence[BatchMaker],
        mode: AutoresetMode,
        *,
        copy: bool,
        start_method: str | None,
        threads_per_worker: int | None,
        faults: FaultPolicy,
    ) -> ProcessVectorEnv:
        """Return a vector env of any batches, with one worker per batch.

        Args:
            ranges: env ids of each batch.
            makers: factories of the batches, with one recipe each.
            mode: autoreset mode.
            copy: False returns views, valid until the step after the next.
            start_method: start method of the workers; None means the best one for this platform.
            threads_per_worker: maximum number of threads of numerical libraries in each worker.
            faults: handling of envs that raise, hang or crash.
        """
        method = resolve_start_method(start_method)
        if method == "fork":
            check_fork()
        venv = cls.__new__(cls)
        workers = _Workers(method, threads_per_worker, faults, ())
        venv._open(ranges, makers, None, workers, mode, "same", copy)
        return venv

    def _open(
        self,
        ranges: Sequence[range],
        makers: Sequence[BatchMaker],
        local: BatchMaker | None,
        workers: _Workers,
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
    ) -> None:
        """Start the workers, build the envs of this process, and connect all of them."""
        specs = make_specs(makers, {**os.environ, **thread_variables(workers.threads)})
        sent: Sequence[WorkerSpec | bytes] = specs
        if workers.method != "fork":
            sent = [pickled_spec(spec) for spec in specs]
        backends: list[WorkerBackend] = []
        batch: Batch | None = None
        is_crowded = len(makers) >= usable_cpus()
        self._worker_arrivals = arrivals = Arrivals(workers.faults.restarts)
        self._unlink = weakref.finalize(self, _unlink_arrivals, os.getpid(), arrivals)
        try:
            for ids, maker, spec in zip(ranges, makers, sent, strict=True):
                start = partial(
                    WorkerProcess,
                    workers.method,
                    workers.threads,
                    spec,
                    f"rookery-{ids.start}",
                    arrivals,
                    workers.faults.has_deadline,
                    workers.preload,
                    is_crowded,
                )
                name = maker.recipes[0].name
                backends.append(WorkerBackend(start, ids, name, workers.faults))
            if local is not None:
                batch = local()
            self._assemble(batch, backends, mode, observation_mode, copy, workers.faults)
            arrivals.have_started()
            if workers.method != "fork":
                self._arrays.pickle_main_by_value()
        except BaseException:
            self._unlink()
            if batch is not None:
                batch.close()
            deadline = time.perf_counter() + _START_GRACE_S
            for backend in backends:
                backend.stop(deadline)
            raise

    @property
    def workers(self) -> tuple[WorkerBackend, ...]:
        """The backends of the workers, for collectors in which workers choose the actions.

        Raises:
            ConfigError: the calling process steps envs too.
        """
        if any(backend.steps_in_caller for backend in self._backends):
            raise ConfigError("this collector needs all envs in workers: caller_steps=False")
        return tuple(self._backends)  # type: ignore[arg-type]

    def _assemble(
        self,
        batch: Batch | None,
        workers: Sequence[WorkerBackend],
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        faults: FaultPolicy,
    ) -> None:
        """Wait until all envs are built, then share arrays with the workers."""
        descriptions = [worker.describe() for worker in workers]
        parts = [worker.env_ids for worker in workers]
        if batch is not None:
            descriptions.insert(0, batch.describe())
            parts.insert(0, batch.ids)
        spaces = self._agree(parts, descriptions, mode, observation_mode, copy, faults.restarts)
        self._shared = shared = SharedArrays(spaces, len(workers))
        shared.allocate()
        backends: list[Backend] = [*workers]
        if batch is not None:
            local = LocalBackend(batch, batch.ids, shared.orders)
            local.attach(shared.arrays, mode)
            backends.insert(0, local)
        try:
            assign_all(workers, spaces, mode, shared, shared.arrays, shared.orders)
        except BaseException:
            shared.release()
            raise
        self._ready(backends, shared.arrays, shared.orders, copy, self._worker_arrivals)

    def _enlarge_rows(self, shape: RowShape) -> None:
        self._shared.enlarge_rows(shape)
        for backend in self._backends:
            backend.adopt_larger_rows(shape)

    def _let_go(self) -> None:
        super()._let_go()
        self._unlink()
        self._shared.release()
        del self._shared, self._worker_arrivals


def _count_workers(
    num_envs: int, num_workers: int | None, isolate: bool, caller_steps: bool
) -> int:
    if isolate:
        if caller_steps:
            raise ConfigError("isolate=True and caller_steps=True contradict each other")
        if num_workers not in (None, num_envs):
            raise ConfigError(
                f"isolate=True needs {num_envs} workers, num_workers={num_workers} was given"
            )
        return num_envs
    if num_workers is None:
        num_workers = max(usable_cpus() - caller_steps, 1)
    whole_number("num_workers", num_workers, 1)
    if caller_steps and num_envs < 2:
        raise ConfigError(
            "caller_steps=True needs at least 2 envs: one for the caller and one for a worker"
        )
    return min(num_workers, num_envs - caller_steps)


class _Workers(NamedTuple):
    """Settings of the workers; see :class:`ProcessVectorEnv`."""

    method: str
    threads: int | None
    faults: FaultPolicy
    preload: tuple[str, ...]


def _unlink_arrivals(owner_pid: int, arrivals: Arrivals) -> None:
    if os.getpid() == owner_pid:  # a forked copy does not own it
        arrivals.forget_name()
