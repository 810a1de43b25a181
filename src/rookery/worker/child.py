"""WorkerProcess: the caller's side of one worker."""

from __future__ import annotations

import pickle
import time
from multiprocessing import connection
from typing import Any

from rookery.env.travel import by_value
from rookery.errors import PicklingError, WorkerDied
from rookery.memory import SharedBlock
from rookery.worker import launch, loop
from rookery.worker.board import Board
from rookery.worker.doorbell import Doorbell
from rookery.worker.failure import Failure, exit_in_words
from rookery.worker.protocol import (
    DONE,
    FAILURE,
    REQUEST,
    Assignment,
    Errand,
    Hello,
    NotFinishedError,
)

_TERMINATE_GRACE_S = 1.0


class WorkerProcess:
    """A child process with some envs; every call that begins something is finished by ``finish``.

    Args:
        start_method: see :mod:`rookery.worker.launch`.
        threads: cap on the threads of numerical libraries.
        errand: what to build. A forked process inherits it; for others it was pickled, see
            :func:`pickled_errand`.
        env_ids: the indices of its envs in the vector env.
        env_name: what to call them in messages.
    """

    def __init__(
        self,
        start_method: str,
        threads: int | None,
        errand: Errand | bytes,
        env_ids: range,
        env_name: str,
    ) -> None:
        self.env_ids = env_ids
        self._env_name = env_name
        self._command = "make"
        self._go, self._done = Doorbell(), Doorbell()
        self._named = True
        self._pipe, theirs = connection.Pipe()
        try:
            self._process = launch.start_process(
                start_method,
                threads,
                loop.run,
                (theirs, self._go, self._done, None if isinstance(errand, bytes) else errand),
                f"rookery-{env_ids.start}",
            )
            self.pid: int = self._process.pid or 0
            if isinstance(errand, bytes):
                self._send(errand)
        except BaseException:
            self._forget_names()
            self._pipe.close()
            raise
        finally:
            theirs.close()

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

    def assign(self, assignment: Assignment, board: Board, block: SharedBlock) -> None:
        """Give it its part of the board."""
        self._command_word, self._reply_word, self._busy_word = board.words(assignment.index)
        try:
            self._pipe.send(assignment)
            block.send(self._pipe, self.pid)
        except OSError as error:
            raise self._died() from error

    def begin_step(self, buffer: int) -> None:
        """Have it step its envs with the actions on the board."""
        self._command = "step"
        self._command_word[0] = buffer
        self._go.ring()

    def request(self, method: str, *args: Any) -> tuple[str, bytes]:
        """A call of a method of its EnvBatch, ready to be sent.

        Raises:
            PicklingError: when an argument cannot travel.
        """
        try:
            return method, by_value((method, args))
        except Exception as error:
            raise PicklingError(
                f"An argument of {method} cannot be sent to a worker: {error}"
            ) from error

    def begin(self, request: tuple[str, bytes]) -> None:
        """Have it do what was requested."""
        self._command, payload = request
        self._command_word[0] = REQUEST
        self._go.ring()
        self._send(payload)

    def finish(self, deadline: float | None = None) -> Any:
        """Wait for what was begun.

        Args:
            deadline: a ``time.perf_counter()`` time.

        Returns:
            The method's result, or ``()`` in place of any empty one.

        Raises:
            NotFinishedError: when the deadline passed.
            EnvFailed, WorkerDied: when the worker failed.
        """
        if not self._done.wait(self.is_alive, deadline):
            if self.is_alive():
                raise NotFinishedError
            raise self._died()
        reply = self._reply_word[0]
        if reply == DONE:
            return ()
        answer = self._receive()
        if reply == FAILURE:
            raise answer.error()
        return answer

    @property
    def busy_s(self) -> float:
        """Seconds it spent stepping so far."""
        return float(self._busy_word[0])

    def is_alive(self) -> bool:
        """Whether the process runs. The sentinel tells even where SIGCHLD is ignored."""
        return not connection.wait([self._process.sentinel], 0) and self._process.exitcode is None

    def stop(self, deadline: float) -> None:
        """End the process by ``deadline``, gently if it lets us, and give back all it held."""
        self._process.join(max(deadline - time.perf_counter(), 0.0))
        if self.is_alive():
            self._process.terminate()
            self._process.join(_TERMINATE_GRACE_S)
        if self.is_alive():
            self._process.kill()
            self._process.join()
        self._forget_names()
        self._pipe.close()
        self._process.close()

    def _forget_names(self) -> None:
        if self._named:
            self._named = False
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
        ids = list(self.env_ids)
        which = f"env {ids[0]}" if len(ids) == 1 else f"envs {ids[0]}-{ids[-1]}"
        return WorkerDied(
            f"The worker process {self.pid} of {which} ({self._env_name}) "
            f"{exit_in_words(self._process.exitcode)} during {self._command}. "
            "What it printed last may say more.",
            env_ids=ids,
            command=self._command,
        )
