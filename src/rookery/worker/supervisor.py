"""SupervisedWorker: a worker that is replaced when it fails, and says so honestly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.env import mail
from rookery.env.seeding import derived_seed, remember_seeds
from rookery.env.slab import SEE_SLAB, News, SlabShape
from rookery.errors import EnvFailed, WorkerDied, WorkerError, WorkerTimeout
from rookery.worker.board import Board
from rookery.worker.child import WorkerProcess
from rookery.worker.faults import FaultPolicy
from rookery.worker.protocol import ANSWER, DONE, FAILURE, Assignment, Hello
from rookery.worker.upkeep import MemoryWatch, RestartBudget

_FAULTS = (EnvFailed, WorkerDied, WorkerTimeout)


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
        self._worker = start()
        self.env_ids = self._worker.env_ids
        self._seeds: list[int | None] = [None] * len(self.env_ids)
        self._budget = RestartBudget(policy)
        self._memory = MemoryWatch(policy.max_worker_rss_mb)
        self._attempt = 0  # restarts so far
        self._is_fresh = True  # whether the process has what it needs to serve
        self._lost: WorkerError | None = None  # a fault noticed when a call was begun
        self._method = ""
        self._args: tuple[Any, ...] = ()  # of the call under way
        self._buffer = 0  # that the envs wrote last
        self._told: dict[int, int] = {}  # by env, the number of the last letter seen
        self._lost_envs: dict[int, dict[str, Any]] = {}  # not yet told of, and the fault
        self._fetched: dict[int, Any] = {}  # what envs told before their worker was replaced
        self._attributes: dict[str, Any] = {}  # what set_attr has set, by name
        self._busy_s_before = 0.0
        self._too_large = ""  # why the present worker is to be replaced, if it is

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
                self._budget.spend(error)
                return self._replace(str(error), None, survivors=())
            if self._method == "reset":
                return self._reset_again(error)
            raise
        return self._recycle_if_large(result) if self._method == "step" else result

    # ---------------------------------------------------------------- mail

    def notify(self) -> None:
        """Have its envs look for mail; those that were lost meanwhile have their answer now."""
        self._renew()
        arrays = self._board.arrays
        for env_id in arrays.mail.unanswered(self.env_ids):
            fault = self._lost_envs.pop(env_id, None)
            if fault is not None and arrays.mail.kind[env_id] == mail.STEP:
                self._answer_for([env_id], fault)
            elif self._told.get(env_id) != arrays.mail.sent[env_id]:
                # Should the worker die while it writes the next observation.
                arrays.copy_rows([env_id], self._buffer, self._other(self._buffer))
            self._told[env_id] = int(arrays.mail.sent[env_id])
        self._worker.notify()

    def obey_next(self) -> bool:
        """Nothing is done by the calling process."""
        return False

    def fetch(self, env_id: int) -> Any:
        """What an env that has answered its mail tells; a fault is survived if allowed."""
        if env_id in self._fetched:
            return self._fetched.pop(env_id)
        try:
            return self._worker.fetch(env_id)
        except _FAULTS as error:
            self._budget.spend(error)
            self._lose(str(error), {env_id})
            return SEE_SLAB

    def check(self) -> None:
        """Notice a fault; the envs that wait for an answer have it then, if that is allowed."""
        try:
            self._worker.check()
        except _FAULTS as error:
            self._budget.spend(error)
            self._lose(str(error), set())

    def settle(self) -> None:
        """Be ready for other calls than mail, once no env has any."""
        self._renew()
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
        arrays, buffer = self._board.arrays, self._buffer
        arrays.copy_rows(closed, self._other(buffer), buffer)
        if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
            news = self._reset_anew(None, None)
        self._close_transitions(closed, self._fault(cause))
        return news or SEE_SLAB

    def _fault(self, cause: str) -> dict[str, Any]:
        return {"cause": cause, "env_ids": tuple(self.env_ids), "attempt": self._attempt}

    def _close_transitions(self, closed: Sequence[int], fault: dict[str, Any]) -> None:
        """Say of some envs that their step was cut short.

        The last observation known is in the present buffer, or, in the same-step mode, where the
        present buffer has the next episode's first, in the other one.
        """
        arrays, buffer, other = self._board.arrays, self._buffer, self._other(self._buffer)
        same_step = self._assignment.autoreset_mode is AutoresetMode.SAME_STEP
        last = arrays.copy_rows(closed, other, other) if same_step else [None] * len(closed)
        arrays.close_rows(closed, buffer)
        if not same_step:
            arrays.slab.void_rows(closed, buffer)
        for env_id, obs in zip(closed, last, strict=True):
            told: list[dict[str, Any]] = [{"fault": fault}]
            if same_step:
                told.insert(0, {"final_obs": obs, "final_info": {"fault": fault}})
            arrays.slab.added[env_id] = told

    def _lose(self, cause: str, failed: set[int]) -> None:
        """Replace the worker while its envs answer mail one by one.

        Args:
            cause: why.
            failed: envs that have answered with a failure.
        """
        mailbox = self._board.arrays.mail
        unanswered = mailbox.unanswered(self.env_ids)
        for env_id in self.env_ids:  # answered, but not yet received
            has_more = mailbox.status[env_id] in (ANSWER, FAILURE) and env_id not in self._fetched
            if has_more and env_id not in unanswered and env_id not in failed:
                try:
                    self._fetched[env_id] = self._worker.fetch(env_id)
                except _FAULTS:
                    failed.add(env_id)
        self._begin_restart()
        fault = self._fault(cause)
        steps = [i for i in unanswered if mailbox.kind[i] == mail.STEP] + sorted(failed)
        self._lost_envs = {i: fault for i in self.env_ids if i not in steps and i not in unanswered}
        arrays, buffer = self._board.arrays, self._buffer
        arrays.copy_rows(steps, self._other(buffer), buffer)
        self._answer_for(steps, fault)
        if len(unanswered) + len(failed) > len(steps):  # resets, which the new worker does
            self._renew()
            self._worker.notify()

    def _answer_for(self, env_ids: Sequence[int], fault: dict[str, Any]) -> None:
        """Answer the mail of envs that were lost: their step was cut short."""
        arrays, buffer, other = self._board.arrays, self._buffer, self._other(self._buffer)
        for env_id in env_ids:
            arrays.mail.answer(env_id, DONE, time.perf_counter())
        if self._assignment.autoreset_mode is AutoresetMode.SAME_STEP:
            arrays.copy_rows(env_ids, buffer, other)
            self._renew()
            news = self._have("begin_episodes", buffer, list(env_ids))
            self._fetched.update(dict.fromkeys(env_ids, news))
            arrays.mail.status[list(env_ids)] = ANSWER
        self._close_transitions(env_ids, fault)

    def _reset_again(self, error: WorkerError) -> Any:
        """Reset in a new worker what could not be reset in the old one."""
        _, _, options, mask = self._args
        if mask is not None and not all(mask):
            raise error  # the envs that were to be left alone are lost; no flag could tell
        self._budget.spend(error)
        self._begin_restart()
        return self._reset_anew(options, mask)

    def _reset_anew(self, options: Any, mask: Any) -> Any:
        """Reset the envs of a worker that is starting; in another one, should that fail too."""
        while True:
            self._renew()
            try:
                return self._have("reset", self._buffer, self._new_seeds(), options, mask)
            except _FAULTS as error:
                self._budget.spend(error)
                self._begin_restart()

    def _have(self, method: str, *args: Any) -> Any:
        """Have the present worker call a method of its batch, and wait for it."""
        self._worker.begin(self._worker.request(method, *args))
        return self._worker.finish()

    def _begin_restart(self) -> None:
        self._attempt += 1
        self._busy_s_before += self._worker.busy_s
        self._worker.kill()
        self._is_fresh, self._too_large = False, ""
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
                self._budget.spend(error)
                self._begin_restart()

    def _new_seeds(self) -> list[int | None]:
        return [derived_seed(seed, self._attempt) for seed in self._seeds]

    def _other(self, buffer: int) -> int:
        return (buffer + 1) % self._assignment.spaces.num_buffers

    # ---------------------------------------------------------------- memory

    def _recycle_if_large(self, news: Any) -> Any:
        """Replace a worker that is too large, once an episode of its envs has ended."""
        self._too_large = self._too_large or self._memory.complaint(self._worker.pid)
        if not self._too_large:
            return news
        ended = self._board.arrays.ended(self.env_ids, self._buffer)
        if not ended:
            return news
        return self._replace(self._too_large, news, survivors=ended)
