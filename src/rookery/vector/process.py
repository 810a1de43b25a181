"""ProcessVectorEnv: envs in worker processes, several to a worker."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.env import registrations
from rookery.env.arrays import BatchSpaces
from rookery.env.batch import EnvBatch
from rookery.env.culprit import find_culprit
from rookery.env.recipe import EnvRecipe
from rookery.env.slab import SlabShape
from rookery.env.travel import by_value
from rookery.errors import ConfigError, PicklingError
from rookery.vector.agreement import ObservationMode
from rookery.vector.base import VectorEnv
from rookery.vector.cpus import usable_cpus
from rookery.vector.local import LocalShare
from rookery.vector.modes import parse_autoreset_mode
from rookery.vector.serial import as_recipes
from rookery.vector.share import Share
from rookery.worker.board import Board
from rookery.worker.child import WorkerProcess
from rookery.worker.doorbell import Doorbell
from rookery.worker.faults import FaultPolicy
from rookery.worker.launch import check_fork, resolve_start_method, thread_variables
from rookery.worker.protocol import Assignment, Errand, Hello
from rookery.worker.supervisor import SupervisedWorker

_START_GRACE_S = 1.0


class ProcessVectorEnv(VectorEnv):
    """A vector env whose envs live in worker processes and whose arrays lie in shared memory.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes).
        shared_memory: accepted for Gymnasium's sake; arrays are always shared.
        copy: False returns views, valid until the step after the next.
        context: the start method, under Gymnasium's name.
        daemon: accepted for Gymnasium's sake; workers end with the caller and may have children.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        num_workers: worker processes; None means one per usable CPU (one fewer if the caller
            steps), and never more than envs.
        start_method: ``"forkserver"``, ``"spawn"``, ``"fork"``; None means the platform's best.
        isolate: one env per worker, and none in the calling process.
        caller_steps: True has the calling process step a share of the envs itself.
        threads_per_worker: cap on the threads of numerical libraries; None leaves them alone.
        faults: what happens when an env raises, hangs, or takes its process with it.
        preload: modules that workers started by a forkserver share in memory.

    Raises:
        PicklingError: when an env's recipe cannot travel.
        EnvFailed: when an env cannot be built.
        WorkerDied: when a worker ends before its envs are built.
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
                "caller_steps=True puts envs into this process, where no deadline can end them and "
                "no restart replace them; the FaultPolicy needs caller_steps=False"
            )
        mode = parse_autoreset_mode(autoreset_mode)
        method = resolve_start_method(start_method or context)
        if method == "fork":
            check_fork()
        recipes = as_recipes(env_fns)
        num_workers = _count_workers(len(recipes), num_workers, isolate, caller_steps)
        ranges = split(len(recipes), num_workers + caller_steps)
        local, remote = (ranges[0], ranges[1:]) if caller_steps else (None, ranges)
        errands = _make_errands(recipes, remote, method, threads_per_worker)
        workers: list[WorkerProcess | SupervisedWorker] = []
        batch = None
        self._arrivals = arrivals = Doorbell()
        self._nameless = weakref.finalize(self, _forget_name, os.getpid(), arrivals)
        try:
            for ids, errand in zip(remote, errands, strict=True):
                name = recipes[ids.start].name
                start = partial(
                    WorkerProcess,
                    method,
                    threads_per_worker,
                    errand,
                    ids,
                    name,
                    faults,
                    arrivals,
                    tuple(preload),
                )
                workers.append(SupervisedWorker(start, faults) if faults.restarts else start())
            if local is not None:
                batch = EnvBatch(recipes[local.start : local.stop], 0)
            self._assemble(batch, workers, mode, observation_mode, copy, faults.restarts)
            if method != "fork":
                self._arrays.leave_the_script()
            if not faults.restarts:  # workers to come find it by its name
                self._nameless()
        except BaseException:
            self._nameless()
            if batch is not None:
                batch.close()
            deadline = time.perf_counter() + _START_GRACE_S
            for worker in workers:
                worker.stop(deadline)
            raise

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """The workers, for a collector that has them act by themselves.

        Raises:
            ConfigError: when the calling process steps envs too, or workers may be replaced.
        """
        workers = [share for share in self._shares if isinstance(share, WorkerProcess)]
        if len(workers) != len(self._shares):
            raise ConfigError("only plain workers can act by themselves")
        return tuple(workers)

    def _assemble(
        self,
        batch: EnvBatch | None,
        workers: Sequence[WorkerProcess | SupervisedWorker],
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        restarts: bool,
    ) -> None:
        arrivals = self._arrivals
        hellos = [worker.hello() for worker in workers]
        shares: list[Share] = [*workers]
        if batch is not None:
            hellos.insert(0, Hello.of(batch.envs))
            shares.insert(0, LocalShare(batch, range(len(batch.envs))))
        self._adopt(shares, hellos, mode, observation_mode)
        spaces = BatchSpaces(
            self.single_observation_space,
            self.single_action_space,
            self.num_envs,
            # A worker that dies may have torn a row; the other buffer still has the last one.
            num_buffers=1 if copy and not restarts else 2,
        )
        self._board = board = Board(spaces, len(workers))
        board.allocate()
        try:
            for index, worker in enumerate(workers):
                worker.assign(Assignment(spaces, mode, len(workers), index), board)
        except BaseException:
            board.release()
            raise
        if not restarts:
            board.release()
        if batch is not None:
            batch.attach(board.arrays, mode)
        self._restarts = restarts
        self._ready(board.arrays, copy, arrivals)

    def _grow_slab(self, shape: SlabShape) -> None:
        self._board.enlarge_slab(shape)
        for share in self._shares:
            if isinstance(share, (WorkerProcess, SupervisedWorker)):
                share.adopt_slab(shape)
        if not self._restarts:
            self._board.release()

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        if hasattr(self, "_board"):
            del self._board, self._arrivals
            self._nameless()
        super().close_extras(timeout, terminate)


def split(num_envs: int, num_parts: int) -> list[range]:
    """Consecutive ranges that cover ``num_envs`` and differ in length by one at most."""
    bounds = [num_envs * i // num_parts for i in range(num_parts + 1)]
    return [range(a, b) for a, b in pairwise(bounds)]


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
    if num_workers < 1:
        raise ConfigError(f"num_workers must be at least 1, got {num_workers}")
    if caller_steps and num_envs < 2:
        raise ConfigError(
            "caller_steps=True needs at least 2 envs, one for the caller, one for a worker"
        )
    return min(num_workers, num_envs - caller_steps)


def _make_errands(
    recipes: list[EnvRecipe], ranges: list[range], method: str, threads: int | None
) -> list[Errand | bytes]:
    """What each worker is told; pickled now, so that nothing has started if that fails."""
    registered = registrations.collect()
    environment = {**os.environ, **thread_variables(threads)}
    errands = [
        Errand(
            recipes[ids.start : ids.stop], ids.start, registered, environment, _working_directory()
        )
        for ids in ranges
    ]
    return [errand if method == "fork" else _pickled(errand) for errand in errands]


def _pickled(errand: Errand) -> bytes:
    try:
        return by_value(errand)
    except Exception as error:
        raise _cannot_travel(errand, error) from error


def _cannot_travel(errand: Errand, error: Exception) -> PicklingError:
    env_id, recipe, what = _culprit(errand)
    return PicklingError(
        f"Env {env_id} ({recipe.name}) cannot be sent to a worker process, because of {what} "
        f"({error}). Ways out: build it in the worker with rookery.Deferred(factory, ...), inherit "
        "it with start_method='fork', or keep the envs in this process with backend='serial'."
    )


def _culprit(errand: Errand) -> tuple[int, EnvRecipe, str]:
    """Env, recipe and the path to what in it cannot be pickled."""
    for env_id, recipe in enumerate(errand.recipes, errand.first_id):
        parts = [("env", recipe.source), ("wrappers", recipe.wrappers)]
        parts += [(f"env_kwargs[{name!r}]", value) for name, value in recipe.kwargs.items()]
        for name, value in parts:
            culprit = find_culprit(value, name)
            if culprit is not None:
                path, part = culprit
                kind = f"{type(part).__module__}.{type(part).__qualname__}"
                return env_id, recipe, f"{path}: {kind.removeprefix('builtins.')}"
    return errand.first_id, errand.recipes[0], "its recipe"


def _forget_name(owner_pid: int, bell: Doorbell) -> None:
    if os.getpid() == owner_pid:  # a forked copy of the owner has no say in this
        bell.forget_name()


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None
