"""WorkerThread: a thread of this process that serves a batch of envs.

Nothing is pickled, and nothing is isolated: an env that crashes takes the process with it, and one
that hangs cannot be ended. When its worker is given up, the thread is left behind; should its env
ever return, it closes its envs and ends without a word.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from rookery.common.resources import NothingWatched, UseWatch
from rookery.env.seam import Batch
from rookery.errors import RookeryError, WorkerDied
from rookery.shared import SharedBlock
from rookery.shared.arrays import BatchArrays
from rookery.worker.failures import Failure
from rookery.worker.loop import GivenUpError, attached, serve
from rookery.worker.orders import Orders
from rookery.worker.pipes import LOOK_S, ChannelClosedError
from rookery.worker.protocol import Assignment, BatchMaker, Bells
from rookery.worker.wait.thread_event import ThreadBell


class MessageQueue:
    """Messages for another thread. One is dropped only after it was made use of."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, Any]] = deque()
        self._bell = ThreadBell()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: tuple[int, Any]) -> None:
        """Add one."""
        self._messages.append(message)
        self._bell.ring()

    def first(self) -> tuple[int, Any]:
        """The one that has waited longest; it stays."""
        return self._messages[0]

    def drop_first(self) -> None:
        """Drop that one."""
        self._messages.popleft()

    def wait(self, seconds: float) -> None:
        """Wait until there may be one, but no longer than this."""
        if not self._messages:
            self._bell.wait(lambda: True, time.perf_counter() + seconds)


class QueueChannel:
    """A channel between two threads; contents are handed over as they are.

    Args:
        outgoing: what the other end receives from.
        incoming: what the other end sends to.
        check: as for :class:`PipeChannel`.
    """

    def __init__(
        self,
        outgoing: MessageQueue,
        incoming: MessageQueue,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._outgoing, self._incoming, self._check = outgoing, incoming, check

    def encode(self, content: Any) -> Any:
        return content

    def decode(self, payload: Any) -> Any:
        return payload

    def failure(self, error: BaseException) -> Any:
        return error if isinstance(error, RookeryError) else Failure.of(error)

    def send(self, number: int, payload: Any, wake: Callable[[], None] = lambda: None) -> None:
        self._outgoing.put((number, payload))

    def receive_into(self, messages: dict[int, Any]) -> None:
        self._wait()
        number, payload = self._incoming.first()
        messages[number] = payload  # twice does no harm
        self._incoming.drop_first()

    is_torn = False

    def has_message(self) -> bool:
        self._look()
        return len(self._incoming) > 0

    def receive(self) -> tuple[int, Any]:
        self._wait()
        message = self._incoming.first()
        self._incoming.drop_first()
        return message

    def _wait(self) -> None:
        while not self._incoming:
            self._incoming.wait(LOOK_S)
            if not self._incoming:
                self._look()

    def _look(self) -> None:
        """Check, but hear what the other end said before it ended."""
        try:
            if self._check is not None:
                self._check()
        except WorkerDied:
            if not self._incoming:
                raise

    def close(self) -> None:
        self._check = None


class WorkerThread:
    """A thread that serves a batch of envs.

    Args:
        make_batch: builds the envs, in the thread.
        name: of the thread.
        arrivals: the bell that all workers of a vector env share.
        check: called ten times a second while a message is waited for; what it raises ends that.

    Attributes:
        node: None: this machine.
        pid: of this process.
        use: nothing, for its share is not known.
        channel: to the thread.
        bells: between it and the caller.
        env_keys: one for each env that was built, the same for the same object.
    """

    kind, fate = "thread", "was given up"
    node = None
    use: UseWatch = NothingWatched()

    def __init__(
        self, make_batch: BatchMaker, name: str, arrivals: ThreadBell, check: Callable[[], None]
    ) -> None:
        self.pid = os.getpid()
        self.bells = Bells(ThreadBell(), ThreadBell(), arrivals)
        to_thread, to_caller = MessageQueue(), MessageQueue()
        self.channel = QueueChannel(to_thread, to_caller, check)
        self._theirs = QueueChannel(to_caller, to_thread, self._raise_if_given_up)
        self._is_given_up = False
        self.env_keys: tuple[int, ...] = ()
        self._make_batch = make_batch
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- the caller's side

    def greet(self) -> None:
        """The thread knows what to build."""

    def has_built(self) -> None:
        """Nothing was kept until now."""

    def assign(self, assignment: Assignment, board: tuple[BatchArrays, Orders]) -> None:
        """Give it its part of the arrays."""
        self.channel.send(0, (assignment, *board))

    def send_block(self, block: SharedBlock) -> None:
        """A thread is lent no blocks."""
        raise NotImplementedError("a worker thread is lent no blocks")

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def end_in_words(self) -> str:
        """How the thread has ended."""
        return "ended"

    def python_stack(self) -> str:
        """The Python stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "(the thread has ended)"
        return "".join(traceback.format_stack(frame)).rstrip()

    def kill(self) -> None:
        """Give the thread up: it ends as soon as no env keeps it."""
        self._is_given_up = True
        self.bells.go.ring()

    def stop(self, deadline: float) -> None:
        """Wait for the thread to end by ``deadline``; after that it is given up."""
        self._thread.join(max(deadline - time.perf_counter(), 0.0))
        self.kill()
        self.channel.close()

    # ---------------------------------------------------------------- the thread's side

    def _run(self) -> None:
        batch = None
        try:
            batch = self._build()
            if batch is not None:
                self._serve(batch)
                batch = None
        except (GivenUpError, ChannelClosedError):
            pass  # nobody is left to tell
        finally:
            if batch is not None:
                _close_quietly(batch)

    def _build(self) -> Batch | None:
        try:
            batch = self._make_batch()
            self.env_keys = tuple(id(env.unwrapped) for env in batch.envs)
            batch.passes_on = (GivenUpError,)
            description = batch.describe()
        except BaseException as error:  # whatever an env does, the caller hears of it
            self._theirs.send(0, self._theirs.failure(error))
            return None
        self._theirs.send(0, description)
        return batch

    def _serve(self, batch: Batch) -> None:
        assignment, arrays, orders = self._theirs.receive()[1]
        # A thread is given up before its successor is ordered anything, through the same words.
        server = attached(batch, assignment, arrays, orders, check=self._raise_if_given_up)
        serve(self._theirs, self.bells, server, assignment.first_requests)

    def _raise_if_given_up(self) -> None:
        if self._is_given_up:
            raise GivenUpError


def _close_quietly(batch: Batch) -> None:
    try:
        batch.close()
    except Exception:  # noqa: S110  an env of a worker that was given up; nobody is left to tell
        pass
