"""SupervisedWorker: a worker that is replaced when it fails, and says so honestly."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import psutil
from gymnasium.vector import AutoresetMode

from rookery.env.seeding import derived_seed, remember_seeds
from rookery.env.slab import SEE_SLAB, News, SlabShape
from rookery.errors import EnvFailed, WorkerDied, WorkerError, WorkerTimeout
from rookery.worker.board import Board
from rookery.worker.child import WorkerProcess
from rookery.worker.faults import FaultPolicy
from rookery.worker.protocol import Assignment, Hello

_FAULTS = (EnvFailed, WorkerDied, WorkerTimeout)
_MEMORY_CHECK_S = 1.0


class SupervisedWorker:
    """Does what a :class:`WorkerProcess` does, and survives its faults as the policy says.

    A fault during a step closes the running transition of every env of the worker: reward 0,
    truncated, the last known observation, ``info["fault"]``. The new process starts in the
    background; only the next call waits for it.

    Args:
        start: starts a worker process that builds the envs.
        policy: says how many restarts are allowed.
    """

    def __init__(self, start: Callable[[], WorkerProcess], policy: FaultPolicy) -> None:
        self._start = start
        self._policy = policy
        self._worker = start()
        self.env_ids = self._worker.env_ids
        self._seeds: list[int | None] = [None] * len(self.env_ids)
        self._restarts: deque[float] = deque()  # times of those within the window
        self._attempt = 0  # restarts so far
        self._is_fresh = True  # whether the process has what it needs to serve
        self._lost: WorkerError | None = None  # a fault noticed when a call was begun
        self._method = ""
        self._args: tuple[Any, ...] = ()  # of the call under way
        self._buffer = 0  # that the envs wrote last
        self._attributes: dict[str, Any] = {}  # what set_attr has set, by name
        self._busy_s_before = 0.0
        self._memory_checked = time.perf_counter()
        self._too_large = ""

    @property
    def pid(self) -> int:
        """The process id of the present worker."""
        return self._worker.pid

    @property
    def busy_s(self) -> float:
        """Seconds that all its processes have spent stepping."""
        return self._busy_s_before + self._worker.busy_s

    def hello(self) -> Hello:
        """Wait until the envs are built; a fault here is raised, whatever the policy."""
        return self._worker.hello()

    def assign(self, assignment: Assignment, board: Board) -> None:
        """Give it its part of the board, which is not to be released while it may restart."""
        self._assignment, self._board = assignment, board
        self._worker.assign(assignment, board)

    def adopt_slab(self, shape: SlabShape) -> None:
        """Have it go on with the board's larger slab, as any worker to come."""
        if not self._is_fresh:
            return
        try:
            self._worker.adopt_slab(shape)
        except WorkerDied as error:
            self._lost = error

    def begin_step(self, buffer: int) -> None:
        """Have it step its envs with the actions on the board."""
        self._renew()
        self._method, self._buffer = "step", buffer
        self._worker.begin_step(buffer)

    def request(self, method: str, *args: Any) -> tuple[str, tuple[Any, ...], Any]:
        """A call of a method of its EnvBatch, ready to be sent."""
        return method, args, self._worker.request(method, *args)

    def begin(self, request: tuple[str, tuple[Any, ...], Any]) -> None:
        """Have it do what was requested."""
        self._method, self._args, sendable = request
        if self._method == "close":
            if not self._is_fresh:
                raise WorkerDied("The worker was about to be replaced")
            self._worker.begin(sendable)
            return
        self._renew()
        if self._method == "reset":
            self._buffer, seeds, _, mask = self._args
            remember_seeds(self._seeds, seeds, mask)
        elif self._method == "set_attr":
            self._attributes[self._args[0]] = self._args
        try:
            self._worker.begin(sendable)
        except WorkerDied as error:
            self._lost = error

    def finish(self, deadline: float | None = None) -> Any:
        """Wait for what was begun; a fault is survived if the policy allows it."""
        try:
            if self._lost is not None:
                lost, self._lost = self._lost, None
                raise lost
            result = self._worker.finish(deadline)
        except _FAULTS as error:
            if self._method == "step":
                self._count(error)
                return self._replace(str(error), None, survivors=())
            if self._method == "reset":
                return self._reset_again(error)
            raise
        if self._method == "step" and self._policy.max_worker_rss_mb is not None:
            return self._recycle_if_large(result)
        return result

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline`` and give back all it held."""
        self._worker.stop(deadline)
        if hasattr(self, "_board"):
            self._board.release()
            del self._board

    # ---------------------------------------------------------------- faults

    def _replace(self, cause: str, news: Any, survivors: tuple[int, ...]) -> News:
        """Replace the worker and close what its envs were doing.

        Args:
            cause: why.
            news: what this very step has told already, if anything.
            survivors: envs whose episode ended by itself in it; their results stay as they are.
        """
        self._begin_restart()
        closed = [env_id for env_id in self.env_ids if env_id not in survivors]
        arrays, buffer = self._board.arrays, self._buffer
        last = arrays.copy_rows(closed, self._other(buffer), buffer)
        arrays.close_rows(closed, buffer)
        arrays.slab.void_rows(closed, buffer)
        fault = {"cause": cause, "env_ids": tuple(self.env_ids), "attempt": self._attempt}
        told: list[dict[str, Any]] = [{"fault": fault}]
        if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
            news = self._reset_anew(None, None)
        for env_id, obs in zip(closed, last, strict=True):
            if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
                told = [{"final_obs": obs, "final_info": {"fault": fault}}, {"fault": fault}]
            arrays.slab.added[env_id] = list(told)
        return news or SEE_SLAB

    def _reset_again(self, error: WorkerError) -> Any:
        """Reset in a new worker what could not be reset in the old one."""
        _, _, options, mask = self._args
        if mask is not None and not all(mask):
            raise error  # the envs that were to be left alone are lost; no flag could tell
        self._count(error)
        self._begin_restart()
        return self._reset_anew(options, mask)

    def _reset_anew(self, options: Any, mask: Any) -> Any:
        """Reset the envs of a worker that is starting; in another one, should that fail too."""
        while True:
            self._renew()
            try:
                return self._have("reset", self._buffer, self._new_seeds(), options, mask)
            except _FAULTS as error:
                self._count(error)
                self._begin_restart()

    def _have(self, method: str, *args: Any) -> Any:
        """Have the present worker call a method of its batch, and wait for it."""
        self._worker.begin(self._worker.request(method, *args))
        return self._worker.finish()

    def _count(self, error: WorkerError) -> None:
        """Note a restart; past the budget, raise instead."""
        now = time.perf_counter()
        while self._restarts and now - self._restarts[0] > self._policy.window_s:
            self._restarts.popleft()
        if len(self._restarts) >= self._policy.max_restarts:
            raise error
        self._restarts.append(now)

    def _begin_restart(self) -> None:
        self._attempt += 1
        self._busy_s_before += self._worker.busy_s
        self._worker.kill()
        self._is_fresh = False
        self._worker = self._start()

    def _renew(self) -> None:
        """Wait for a worker that is starting in the background, and bring it up to date."""
        while not self._is_fresh:
            try:
                self._worker.hello()
                self._worker.assign(self._assignment, self._board)
                self._have("resume", self._buffer, self._new_seeds())
                for args in self._attributes.values():
                    self._have("set_attr", *args)
                self._is_fresh = True
            except _FAULTS as error:
                self._count(error)
                self._begin_restart()

    def _new_seeds(self) -> list[int | None]:
        return [derived_seed(seed, self._attempt) for seed in self._seeds]

    def _other(self, buffer: int) -> int:
        return (buffer + 1) % self._assignment.spaces.num_buffers

    # ---------------------------------------------------------------- memory

    def _recycle_if_large(self, news: Any) -> Any:
        now = time.perf_counter()
        if not self._too_large and now - self._memory_checked > _MEMORY_CHECK_S:
            self._memory_checked = now
            self._too_large = self._size_above_limit()
        buffer = self._buffer
        ended = self._board.arrays.ended(self.env_ids, buffer) if self._too_large else ()
        if not ended:
            return news
        cause, self._too_large = self._too_large, ""
        return self._replace(cause, news, survivors=ended)

    def _size_above_limit(self) -> str:
        assert self._policy.max_worker_rss_mb is not None
        rss_mb = psutil.Process(self._worker.pid).memory_info().rss / 2**20
        if rss_mb <= self._policy.max_worker_rss_mb:
            return ""
        return (
            f"Worker process {self._worker.pid} had {rss_mb:.0f} MiB of resident memory, above "
            f"max_worker_rss_mb={self._policy.max_worker_rss_mb:g}, and was replaced"
        )
