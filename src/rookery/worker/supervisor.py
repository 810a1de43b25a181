"""SupervisedWorker: a worker that is replaced when it fails, and says so honestly."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import psutil
from gymnasium.vector import AutoresetMode

from rookery.env import mail
from rookery.env.seeding import derived_seed, remember_seeds
from rookery.env.slab import SEE_SLAB, News, SlabShape
from rookery.errors import EnvFailed, WorkerDied, WorkerError, WorkerTimeout
from rookery.worker.board import Board
from rookery.worker.child import WorkerProcess
from rookery.worker.faults import FaultPolicy
from rookery.worker.protocol import ANSWER, DONE, Assignment, Hello

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
        self._told: set[int] = set()  # envs that have mail and were alive then
        self._lost_envs: dict[int, dict[str, Any]] = {}  # idle when they were lost, and the fault
        self._fetched: dict[int, Any] = {}  # what envs told before their worker was replaced
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
        if self._lost_envs:
            self._lost = WorkerDied(next(iter(self._lost_envs.values()))["cause"])
            self._lost_envs = {}
        if self._lost is None:
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
            self._lost_envs = {}
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

    # ---------------------------------------------------------------- mail

    def notify(self) -> None:
        """Have its envs look for mail; those that were lost meanwhile have their answer now."""
        self._renew()
        arrays, other = self._board.arrays, self._other(self._buffer)
        fresh = [i for i in arrays.mail.unanswered(self.env_ids) if i not in self._told]
        for env_id in fresh:
            if env_id in self._lost_envs:
                fault = self._lost_envs.pop(env_id)
                if arrays.mail.kind[env_id] == mail.STEP:
                    same_step = self._assignment.autoreset_mode is AutoresetMode.SAME_STEP
                    self._close_transitions([env_id], fault, is_reset=same_step)
                    arrays.mail.answer(env_id, DONE, time.perf_counter())
                    continue
            self._told.add(env_id)
            for new, old in zip(arrays.obs[other], arrays.obs[self._buffer], strict=True):
                new[env_id] = old[env_id]  # should the worker die while it writes the next one
        self._worker.notify()

    def obey_next(self) -> bool:
        """Nothing is done by the calling process."""
        return False

    def fetch(self, env_id: int) -> Any:
        """What an env that has answered its mail tells; a fault is survived if allowed."""
        self._told.discard(env_id)
        if env_id in self._fetched:
            return self._fetched.pop(env_id)
        try:
            return self._worker.fetch(env_id)
        except _FAULTS as error:
            self._count(error)
            self._lose(str(error), {env_id})
            return SEE_SLAB

    def check(self) -> None:
        """Notice a fault; the envs that wait for an answer have it then, if that is allowed."""
        try:
            self._worker.check()
        except _FAULTS as error:
            self._count(error)
            self._lose(str(error), set())

    def settle(self) -> None:
        """Be ready for other calls than mail, once no env has any."""
        self._renew()
        self._told.clear()
        self._worker.settle()

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
        self._close_transitions(closed, self._fault(cause))
        if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
            news = self._reset_anew(None, None)
        return news or SEE_SLAB

    def _fault(self, cause: str) -> dict[str, Any]:
        return {"cause": cause, "env_ids": tuple(self.env_ids), "attempt": self._attempt}

    def _close_transitions(
        self, closed: Sequence[int], fault: dict[str, Any], is_reset: bool = False
    ) -> None:
        """Say of some envs that their step was cut short, at the last observation known.

        Args:
            closed: which.
            fault: why.
            is_reset: the envs show the first observation of a new episode already; that stays.
        """
        arrays, buffer = self._board.arrays, self._buffer
        other = self._other(buffer)
        last = arrays.copy_rows(closed, other, other if is_reset else buffer)
        arrays.close_rows(closed, buffer)
        if not is_reset:
            arrays.slab.void_rows(closed, buffer)
        for env_id, obs in zip(closed, last, strict=True):
            told: list[dict[str, Any]] = [{"fault": fault}]
            if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
                told.insert(0, {"final_obs": obs, "final_info": {"fault": fault}})
            arrays.slab.added[env_id] = told

    def _lose(self, cause: str, failed: set[int]) -> None:
        """Replace the worker while its envs answer mail one by one.

        Args:
            cause: why.
            failed: envs that have answered with a failure.
        """
        mailbox, now = self._board.arrays.mail, time.perf_counter()
        unanswered = mailbox.unanswered(self.env_ids)
        for env_id in self._told - failed - set(unanswered):  # answered, but not yet received
            try:
                self._fetched[env_id] = self._worker.fetch(env_id)
            except _FAULTS:
                failed.add(env_id)
        self._begin_restart()
        fault = self._fault(cause)
        steps = [i for i in unanswered if mailbox.kind[i] == mail.STEP] + sorted(failed)
        idle = [i for i in self.env_ids if i not in self._told and i not in failed]
        self._lost_envs.update(dict.fromkeys(idle, fault))
        self._board.arrays.copy_rows(idle, self._buffer, self._other(self._buffer))
        self._close_transitions(steps, fault)
        self._told -= {*steps}
        if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP and steps:
            self._renew()
            self._fetched[steps[0]] = self._have("begin_episodes", self._buffer, [*steps, *idle])
        for env_id in steps:
            mailbox.answer(env_id, ANSWER if env_id in self._fetched else DONE, now)
        if len(unanswered) > len(steps):  # resets, which the new worker does
            self._renew()
            self._worker.notify()

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
