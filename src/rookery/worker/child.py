"""WorkerProcess: the caller's side of one worker."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from rookery.env.arrays import BatchArrays
from rookery.env.batch import IDLE
from rookery.env.seeding import remember_seeds
from rookery.env.slab import SEE_SLAB, SlabShape
from rookery.env.travel import pickled, pickled_for_workers
from rookery.errors import PicklingError, WorkerDied, WorkerTimeout
from rookery.memory import SharedBlock
from rookery.worker import launch, loop
from rookery.worker.board import Board, Words
from rookery.worker.deadlines import Deadlines, python_stack
from rookery.worker.doorbell import Doorbell
from rookery.worker.failure import Failure, exit_in_words, oom_kills
from rookery.worker.faults import FaultPolicy
from rookery.worker.protocol import (
    ADOPT_SLAB,
    DONE,
    EVERYBODY,
    FAILURE,
    LEND,
    MAIL,
    REQUEST,
    SEEN_IN_SLAB,
    SETTLE,
    STACK_SIGNAL,
    Assignment,
    Errand,
    Hello,
    NotFinishedError,
)

_TERMINATE_GRACE_S = 1.0
_UNKNOWN_EXIT_CODE = 255
_SMALL_BYTES = 1024
_NO_WORDS = Words(
    command=[DONE], reply=[DONE], progress=[IDLE, 0, 0], busy_s=[0.0]
)  # before a board


class WorkerProcess:
    """A child process with some envs; every call that begins something is finished by ``finish``.

    Args:
        start_method: see :mod:`rookery.worker.launch`.
        threads: cap on the threads of numerical libraries.
        errand: what to build. A forked process inherits it; for others it was pickled.
        env_ids: the indices of its envs in the vector env.
        env_name: what to call them in messages.
        policy: its deadlines.
        arrivals: the bell that all workers ring when an env has answered its mail.
        preload: modules that a forkserver has imported before it forks.
    """

    def __init__(
        self,
        start_method: str,
        threads: int | None,
        errand: Errand | bytes,
        env_ids: range,
        env_name: str,
        policy: FaultPolicy,
        arrivals: Doorbell,
        preload: tuple[str, ...] = (),
    ) -> None:
        self.env_ids = env_ids
        self._early: dict[int, Any] = {}  # answers to mail, received before they were asked for
        self._deadlines = Deadlines(policy) if policy.has_deadline else None
        self._stacks, their_stacks = _stack_pipe(policy)
        self._env_name = env_name
        self._command = "make"
        self._words = _NO_WORDS
        self._arrays: BatchArrays | None = None
        self._seeds: list[int | None] = [None] * len(env_ids)
        self._last_action: Callable[[int, int], Any] | None = None
        self._between_waits: Callable[[], None] = lambda: None
        self._oom_kills_before = oom_kills()
        self._go, self._done = Doorbell(), Doorbell()
        self._pipe, theirs = connection.Pipe()
        inherited = None if isinstance(errand, bytes) else errand
        # A forked worker has the script's own classes; copies by value would be others.
        self._pickled = pickled if inherited else pickled_for_workers
        try:
            self._process = launch.start_process(
                start_method,
                threads,
                loop.run,
                (theirs, self._go, self._done, arrivals, inherited, their_stacks),
                f"rookery-{env_ids.start}",
                preload,
            )
            self.pid: int = self._process.pid or 0
            if isinstance(errand, bytes):
                self._send(errand)
        except BaseException:
            self._forget_names()
            self._close_pipes()
            raise
        finally:
            theirs.close()
            if their_stacks is not None:
                their_stacks.close()

    def hello(self) -> Hello:
        """Wait until its envs are built.

        Raises:
            EnvFailed: when one could not be built.
            WorkerDied: when the process ended.
        """
        answer = self._receive()
        self._forget_names()
        if isinstance(answer, Failure):
            raise answer.error()
        assert isinstance(answer, Hello)
        return answer

    def assign(self, assignment: Assignment, board: Board) -> None:
        """Give it its part of the board."""
        self._board, self._arrays = board, board.arrays
        self._words = board.words(assignment.index)
        self._words.command[0] = MAIL
        try:
            self._pipe.send_bytes(self._pickled(assignment))
            board.send(self._pipe, self.pid)
        except OSError as error:
            raise self._died() from error

    def adopt_slab(self, shape: SlabShape) -> None:
        """Have it go on with the board's larger slab."""
        self.begin(self.request(ADOPT_SLAB, shape))
        try:
            self._board.send_slab(self._pipe, self.pid)
        except OSError as error:
            raise self._died() from error
        self.finish()

    # ---------------------------------------------------------------- all envs together

    def begin_step(self, buffer: int) -> None:
        """Have it step its envs with the actions on the board."""
        self._command = "step"
        self._words.command[0] = buffer
        self._go.ring()

    def request(self, method: str, *args: Any) -> tuple[str, bytes]:
        """A call of a method of its EnvBatch, ready to be sent.

        Raises:
            PicklingError: when an argument cannot travel.
        """
        if method == "reset":
            _, seeds, _, mask = args
            remember_seeds(self._seeds, seeds, mask)
        try:
            return method, self._pickled((method, args))
        except Exception as error:
            raise PicklingError(
                f"An argument of {method} cannot be sent to a worker: {error}"
            ) from error

    def begin(self, request: tuple[str, bytes], ring_first: bool = False) -> None:
        """Have it do what was requested.

        Args:
            request: what.
            ring_first: whether it must have heard the ring once it has what was requested.
        """
        self._command, payload = request
        if not self.is_alive():
            raise self._died()
        self._words.command[0] = REQUEST
        if (
            len(payload) <= _SMALL_BYTES and not ring_first
        ):  # it fits the pipe: the worker need not wake up twice
            self._send(payload)
            self._go.ring()
        else:
            self._go.ring()
            self._send(payload)

    def find_actions(self, last_action: Callable[[int, int], Any]) -> None:
        """Say where actions are that somebody in the worker decides on, for messages.

        Args:
            last_action: ``(steps of the batch, env id) -> action`` of the latest of these steps.
        """
        self._last_action = last_action

    def call_between_waits(self, function: Callable[[], None]) -> None:
        """Have something called ten times a second while this worker is waited for.

        Args:
            function: what it raises ends the wait, which can be taken up again.
        """
        self._between_waits = function

    def lend(self, block: SharedBlock) -> None:
        """Give it access to a block; what is installed afterwards finds its memory there."""
        self.begin(self.request(LEND))
        try:
            block.send(self._pipe, self.pid)
        except OSError as error:
            raise self._died() from error
        self.finish()

    @property
    def pipe(self) -> Connection:
        """Can be read once an answer that is not empty has come; for waiting, not for reading."""
        return self._pipe

    def finish(self, deadline: float | None = None) -> Any:
        """Wait for what was begun.

        Args:
            deadline: a ``time.perf_counter()`` time.

        Returns:
            The method's result, or ``()`` in place of any empty one.

        Raises:
            NotFinishedError: when the deadline passed.
            EnvFailed, WorkerDied, WorkerTimeout: when the worker failed.
        """
        if self._deadlines is not None:
            self._deadlines.forget()
        if not self._done.wait(self._may_still_ring, deadline):
            self._raise_fault()
            raise NotFinishedError
        reply = self._words.reply[0]
        if reply == DONE:
            return ()
        if reply == SEEN_IN_SLAB:
            return SEE_SLAB
        return self._answer(EVERYBODY, reply)

    # ---------------------------------------------------------------- mail

    def notify(self) -> None:
        """Have it look for mail to its envs."""
        self._command = "step"
        if self._deadlines is not None:
            self._deadlines.forget()
        self._go.ring()

    def obey_next(self) -> bool:
        """Nothing is done by the calling process."""
        return False

    def fetch(self, env_id: int) -> Any:
        """What an env that has answered its mail tells beside the arrays; raises its failure."""
        assert self._arrays is not None
        status = int(self._arrays.mail.status[env_id])
        return () if status in (DONE, SEEN_IN_SLAB) else self._answer(env_id, status)

    def check(self) -> None:
        """Raise what keeps it from ever answering, if anything does."""
        self._raise_fault()

    def settle(self) -> None:
        """Be ready for other calls than mail, once no env has any."""
        self.begin(self.request(SETTLE), ring_first=True)
        self.finish()

    # ---------------------------------------------------------------- the process

    def _answer(self, whose: int, status: int) -> Any:
        while whose not in self._early:
            owner, answer = self._receive()
            self._early[owner] = answer
        answer = self._early.pop(whose)
        if status == FAILURE:
            raise answer.error()
        return answer

    @property
    def busy_s(self) -> float:
        """Seconds it spent stepping so far."""
        return float(self._words.busy_s[0])

    def is_alive(self) -> bool:
        """Whether the process runs. The sentinel tells even where SIGCHLD is ignored."""
        return not connection.wait([self._process.sentinel], 0) and self._process.exitcode is None

    def _may_still_ring(self) -> bool:
        self._between_waits()
        return self.is_alive() and self._late() is None

    def _late(self) -> tuple[int, str, float] | None:
        if self._deadlines is None:
            return None
        return self._deadlines.late(self._words.progress)

    def _raise_fault(self) -> None:
        if not self.is_alive():
            raise self._died()
        late = self._late()
        if late is not None:
            raise self._timed_out(*late)

    def kill(self) -> None:
        """End the process, and those its envs have started, at once."""
        self._end_group()
        self.stop(deadline=0.0)

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline``, gently if it lets us, and give back all it held."""
        if self._arrays is None:  # it waits to be assigned its part, and leaves if nobody is there
            self._pipe.close()
        patience_s = max(deadline - time.perf_counter(), 0.0)
        connection.wait([self._process.sentinel], patience_s)
        if self.is_alive():
            self._process.terminate()
            self._process.join(_TERMINATE_GRACE_S)
        self._end_group()
        self._process.join()
        self._forget_names()
        self._close_pipes()
        if self._process.exitcode is None:  # somebody else, or an ignored SIGCHLD, has reaped it
            self._process._popen.returncode = _UNKNOWN_EXIT_CODE  # type: ignore[attr-defined]
        self._process.close()

    def _end_group(self) -> None:
        """Kill the process and whatever its envs have started; it leads a group of its own."""
        if not hasattr(os, "killpg"):
            self._process.kill()
            return
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (
            ProcessLookupError,
            PermissionError,
        ):  # nobody is left; macOS says it the second way
            self._process.kill()  # it may not yet lead its group

    def _close_pipes(self) -> None:
        self._pipe.close()
        if self._stacks is not None:
            self._stacks.close()

    def _forget_names(self) -> None:
        self._go.forget_name()
        self._done.forget_name()

    def _send(self, payload: bytes) -> None:
        try:
            self._pipe.send_bytes(payload)
        except OSError as error:
            raise self._died() from error

    def _receive(self) -> Any:
        try:
            return pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error

    def _died(self) -> WorkerDied:
        self._process.join(_TERMINATE_GRACE_S)
        ids = self.env_ids
        which = f"env {ids[0]}" if len(ids) == 1 else f"envs {ids[0]}-{ids[-1]}"
        out_of_memory = (oom_kills() or 0) > (self._oom_kills_before or 0)
        busy = abs(self._words.progress[0]) - 1
        doing = f"{self._command} of env {busy}" if busy >= 0 else self._command
        return WorkerDied(
            f"The worker process {self.pid} of {which} ({self._env_name}) "
            f"{exit_in_words(self._process.exitcode, out_of_memory)} during {doing}. "
            "What it printed last may say more.",
            env_ids=sorted(ids, key=lambda env_id: env_id != busy),
            command=self._command,
            **self._circumstances(busy),
        )

    def _timed_out(self, env_id: int, command: str, limit_s: float) -> WorkerTimeout:
        circumstances = self._circumstances(env_id)  # the signal may end what it hangs in
        stack = python_stack(self.pid, self._stacks)
        self._end_group()
        self._process.join(_TERMINATE_GRACE_S)
        return WorkerTimeout(
            f"Env {env_id} ({self._env_name}) did not finish its {command} within {limit_s} s; its "
            f"worker process {self.pid} was killed. Where it hung:\n{stack}",
            env_ids=(env_id,),
            command=command,
            **circumstances,
        )

    def _circumstances(self, env_id: int) -> dict[str, Any]:
        """What an env was doing when its process could no longer say so itself."""
        if self._arrays is None or env_id < 0:
            return {}
        stepping, steps = self._words.progress[0] > IDLE, int(self._words.progress[1])
        return {
            "seed": self._seeds[env_id - self.env_ids.start],
            "steps_since_reset": int(steps - self._arrays.reset_at[env_id]),
            "last_action": self._action(steps, env_id) if stepping else None,
        }

    def _action(self, steps: int, env_id: int) -> Any:
        if self._last_action is not None:
            return self._last_action(steps, env_id)
        assert self._arrays is not None
        return next(self._arrays.read_actions(env_id, env_id + 1))


def _stack_pipe(policy: FaultPolicy) -> tuple[Connection | None, Connection | None]:
    if not policy.has_deadline or STACK_SIGNAL is None:
        return None, None
    return connection.Pipe(duplex=False)
