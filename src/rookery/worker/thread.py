"""WorkerThread: a thread of this process that serves a batch of envs, and its channel.

Nothing is pickled, and nothing is isolated. An env that crashes kills the process, and an env that
hangs cannot be stopped. If its worker is given up, the thread is left behind. If the env ever
returns, the thread closes its envs and exits silently.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
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
from rookery.worker.protocol import Assignment, BatchMaker, Events
from rookery.worker.wait.thread_event import ThreadEvent


class MessageQueue:
    """Messages for another thread. A message is dropped only after it was used."""

    def __init__(self) -> None:
        self._messages: deque[tuple[int, Any]] = deque()
        self._event = ThreadEvent()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: tuple[int, Any]) -> None:
        """Add a message."""
        self._messages.append(message)
        self._event.set()

    def first(self) -> tuple[int, Any]:
        """Return the oldest message without dropping it."""
        return self._messages[0]

    def drop_first(self) -> None:
        """Drop the oldest message."""
        self._messages.popleft()

    def wait(self, seconds: float) -> None:
        """Wait until there may be a message, at most ``seconds``."""
        if not self._messages:
            self._event.wait(lambda: True, time.perf_counter() + seconds)


class QueueChannel:
    """A channel between two threads. Contents are not copied.

    Args:
        outgoing: the queue that the other end receives from.
        incoming: the queue that the other end sends to.
        check: called ten times a second while waiting. An exception that it raises ends the wait.
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
        messages[number] = payload  # doing this twice does no harm
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
        """Check, but first receive what the other end sent before it exited."""
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
        name: name of the thread.
        arrivals: the event that all workers of a vector env share.
        check: called ten times a second while waiting for a message. An exception that it raises
            ends the wait.

    Attributes:
        kind, fate: for messages, what this worker is and what happens when it is killed.
        node: None, which is this machine.
        pid: id of this process.
        use: measures nothing, because the use of a single thread is unknown.
        channel: the channel to the thread.
        events: the events between the thread and the caller.
        env_keys: for each env that was built, the identity of its unwrapped env.
    """

    kind, fate = "thread", "was given up"
    node = None
    use: UseWatch = NothingWatched()

    def __init__(
        self, make_batch: BatchMaker, name: str, arrivals: ThreadEvent, check: Callable[[], None]
    ) -> None:
        self.pid = os.getpid()
        self.events = Events(ThreadEvent(), ThreadEvent(), arrivals)
        to_thread, to_caller = MessageQueue(), MessageQueue()
        self.channel = QueueChannel(to_thread, to_caller, check)
        self._worker_channel = QueueChannel(to_caller, to_thread, self._raise_if_given_up)
        self._is_given_up = False
        self.env_keys: tuple[int, ...] = ()
        self._make_batch = make_batch
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- the caller's side

    def greet(self) -> None:
        """Do nothing: the thread knows what to build."""

    def has_built(self) -> None:
        """Do nothing: there is nothing to release."""

    def assign(self, assignment: Assignment, shared: tuple[BatchArrays, Orders]) -> None:
        """Give the thread its part of the arrays."""
        self.channel.send(0, (assignment, *shared))

    def send_block(self, block: SharedBlock) -> None:
        """Raise an error: a thread shares all memory."""
        raise NotImplementedError("blocks cannot be lent to a worker thread")

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def end_in_words(self) -> str:
        """Return how the thread has ended, for messages."""
        return "ended"

    def python_stack(self) -> str:
        """Return the Python stack of the thread."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "(the thread has ended)"
        return "".join(traceback.format_stack(frame)).rstrip()

    def kill(self) -> None:
        """Give the thread up: it exits as soon as its env returns."""
        self._is_given_up = True
        self.events.go.set()

    def stop(self, deadline: float) -> None:
        """Wait for the thread until ``deadline``, and give it up if it still runs then."""
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
            pass  # the caller does not wait
        finally:
            if batch is not None:
                with suppress(Exception):  # the caller does not wait
                    batch.close()

    def _build(self) -> Batch | None:
        try:
            batch = self._make_batch()
            self.env_keys = tuple(id(env.unwrapped) for env in batch.envs)
            batch.passes_on = (GivenUpError,)
            description = batch.describe()
        except BaseException as error:  # the caller raises it
            self._worker_channel.send(0, self._worker_channel.failure(error))
            return None
        self._worker_channel.send(0, description)
        return batch

    def _serve(self, batch: Batch) -> None:
        assignment, arrays, orders = self._worker_channel.receive()[1]
        # Its successor uses the same words, so a thread that was given up must stop before.
        server = attached(batch, assignment, arrays, orders, check=self._raise_if_given_up)
        serve(self._worker_channel, self.events, server, assignment.first_requests)

    def _raise_if_given_up(self) -> None:
        if self._is_given_up:
            raise GivenUpError
