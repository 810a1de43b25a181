"""Vector envs with threads of this process, for envs that wait or release the GIL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.arguments import whole_number
from rookery.env.batch import EnvBatch
from rookery.env.group import find_twins
from rookery.env.recipe import EnvRecipe
from rookery.errors import ConfigError
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import RowShape
from rookery.vector.agreement import ObservationMode, parse_autoreset_mode
from rookery.vector.base import VectorEnv
from rookery.vector.serial import as_recipes
from rookery.vector.specs import split
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.orders import Orders
from rookery.worker.protocol import BatchMaker
from rookery.worker.thread import WorkerThread
from rookery.worker.wait.thread_event import ThreadEvent
from rookery.worker.worker_backend import WorkerBackend, assign_all

MOST_THREADS = 32  # default maximum


class ThreadVectorEnv(VectorEnv):
    """A vector env that steps its envs in threads of this process.

    Threads suit envs that wait (for sockets, HTTP, subprocesses) or release the GIL, free-threaded
    Python, and arguments that cannot be pickled. Each env is used by one thread, so it need not be
    thread-safe. Objects that several envs share must be thread-safe.

    An env that crashes the interpreter ends this process. Exceptions and missed deadlines are
    handled as in worker processes, except that a hung thread cannot be killed: the error shows its
    Python stack, and the thread remains until its env returns.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes); called in the env's thread.
        copy: False returns views, valid until the step after the next.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        num_workers: number of threads; None means one per env, and at most 32.
        faults: handling of envs that raise or hang.

    Raises:
        EnvFailed: an env cannot be built.
    """

    backend = "thread"

    def __init__(
        self,
        env_fns: Sequence[Callable[..., Any] | EnvRecipe],
        copy: bool = True,
        *,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        num_workers: int | None = None,
        faults: FaultPolicy | None = None,
    ) -> None:
        faults = faults or FaultPolicy()
        if faults.max_worker_rss_mb is not None:
            raise ConfigError(
                "max_worker_rss_mb replaces worker processes that use too much memory, so it needs "
                "backend='process'; threads share one process"
            )
        mode = parse_autoreset_mode(autoreset_mode)
        recipes = as_recipes(env_fns)
        num_workers = MOST_THREADS if num_workers is None else num_workers
        count = min(len(recipes), whole_number("num_workers", num_workers, 1))
        arrivals = ThreadEvent()
        backends: list[WorkerBackend] = []
        build = partial(EnvBatch, envs_in_process=range(len(recipes)))
        try:
            for ids in split(len(recipes), count):
                maker = BatchMaker(build, recipes[ids.start : ids.stop], ids.start)
                start = partial(WorkerThread, maker, f"rookery-{ids.start}", arrivals)
                backends.append(WorkerBackend(start, ids, recipes[ids.start].name, faults))
            self._assemble(backends, mode, observation_mode, copy, faults, arrivals)
        except BaseException:
            for backend in backends:
                backend.stop(time.perf_counter())
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
        """Wait until all envs are built, then create the arrays."""
        descriptions = [backend.describe() for backend in backends]
        _refuse_twins([key for backend in backends for key in backend.worker.env_keys])  # type: ignore[attr-defined]
        parts = [backend.env_ids for backend in backends]
        spaces = self._agree(parts, descriptions, mode, observation_mode, copy, faults.restarts)
        arrays = BatchArrays.in_memory(spaces)
        orders = Orders.in_memory(self.num_envs, len(backends))
        assign_all(backends, spaces, mode, (arrays, orders), arrays, orders)
        self._ready(backends, arrays, orders, copy, arrivals)

    def _enlarge_rows(self, shape: RowShape) -> None:
        self._arrays.enlarge_rows_in_memory(shape)


def _refuse_twins(keys: Sequence[int]) -> None:
    """Raise if two threads would step the same env object; batches check their envs themselves."""
    twins = find_twins(keys)
    if twins is not None:
        raise ConfigError(
            f"Envs {twins[0]} and {twins[1]} are the same object, which two threads would step at "
            "once. Return a new env at each call"
        )
