"""Channels: messages between a caller and one worker, each with the number of what it belongs to.

A worker may end, or be stopped, in the middle of a message, and processes that its envs have
started may hold its end of the pipe open. So the caller never blocks in a system call: it waits a
tenth of a second at most and asks its ``check`` in between, which raises what keeps the message
from coming.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, Protocol

from rookery.env.travel import pickled, pickled_for_workers
from rookery.errors import RookeryError, WorkerDied
from rookery.memory import SharedBlock
from rookery.worker.failure import Failure
from rookery.worker.threadbell import ThreadBell

_LOOK_S = 0.1
_HEADER = struct.Struct("<qq")  # the number and how many bytes follow
_CHUNK_BYTES = 2**18


class ChannelClosedError(Exception):
    """The other side is gone. Never reaches a user."""


class TornError(Exception):
    """An interruption cut a message short; nothing more can be said. Never reaches a user."""


class _ClosedIfItFails:
    """Says ChannelClosedError when a system call fails.

    It is put around system calls alone: what a ``check`` raises may be an OSError too, as a
    WorkerTimeout is, being a TimeoutError, and must not pass for one of the pipe.
    """

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        if isinstance(error, (OSError, EOFError)):
            raise ChannelClosedError from error


_closed_if_it_fails = _ClosedIfItFails()


class Channel(Protocol):
    """One end of a channel."""

    def encode(self, content: Any) -> Any:
        """What is sent for some content; raises whatever the content raises when pickled."""

    def decode(self, payload: Any) -> Any:
        """The content that was sent; raises whatever the content raises when unpickled."""

    def failure(self, error: BaseException) -> Any:
        """The payload that says what went wrong: content is a Failure, or the error itself."""

    def send(self, number: int, payload: Any, wake: Callable[[], None] = lambda: None) -> None:
        """Send a message; raises ChannelClosedError when nobody can receive it.

        Args:
            number: of what it belongs to.
            payload: what ``encode`` made.
            wake: called when the message cannot go on until the other side reads.
        """

    def has_message(self) -> bool:
        """Whether the beginning of a message has come."""

    def receive(self) -> tuple[int, Any]:
        """Wait for a message; raises ChannelClosedError when none can come."""

    def receive_into(self, messages: dict[int, Any]) -> None:
        """Wait for a message and put it among others, by number; an interruption loses none."""

    @property
    def is_torn(self) -> bool:
        """Whether an interruption cut a message short; nothing more can be said then."""

    def close(self) -> None:
        """Give the channel up."""


class PipeChannel:
    """A channel to another process.

    Args:
        pipe: this end of it.
        check: called ten times a second while waiting; what it raises ends the wait. None blocks:
            for the worker, which ends when its caller does.
        by_value: whether the other side has not run the caller's script, so that what it defines
            must travel by value.
    """

    def __init__(
        self, pipe: Connection, check: Callable[[], None] | None = None, by_value: bool = False
    ) -> None:
        self._pipe = pipe
        self._check = check
        self._is_torn = False
        self._arrived = bytearray()  # of a message that is not yet whole
        self.encode: Callable[[Any], bytes] = pickled_for_workers if by_value else pickled
        self.decode: Callable[[bytes], Any] = pickle.loads
        if check is not None and not _WINDOWS:
            os.set_blocking(pipe.fileno(), False)

    def failure(self, error: BaseException) -> bytes:
        return self.encode(Failure.of(error))

    @property
    def pipe(self) -> Connection:
        """Can be read once a message has come; for waiting, not for reading."""
        return self._pipe

    def send(self, number: int, payload: bytes, wake: Callable[[], None] = lambda: None) -> None:
        self._require_whole()
        self._is_torn = True  # until all of it is sent
        self._write(_HEADER.pack(number, len(payload)) + payload, wake)
        self._is_torn = False

    def receive(self) -> tuple[int, bytes]:
        messages: dict[int, bytes] = {}
        self.receive_into(messages)
        return messages.popitem()

    def receive_into(self, messages: dict[int, Any]) -> None:
        self._require_whole()
        if _WINDOWS:
            messages.update([self._receive_whole()])
            return
        self._read_until(_HEADER.size)
        number, length = _HEADER.unpack_from(self._arrived)
        self._read_until(_HEADER.size + length)
        messages[number] = bytes(self._arrived[_HEADER.size :])  # twice does no harm
        self._arrived = bytearray()

    @property
    def is_torn(self) -> bool:
        return self._is_torn

    def has_message(self) -> bool:
        with _closed_if_it_fails:
            return self._pipe.poll(0)

    def send_block(self, block: SharedBlock, pid: int) -> None:
        """Give the process ``pid`` at the other end access to a block."""
        size_bytes, handle = block.address
        self.send(0, pickle.dumps((size_bytes, None if handle is None else str(handle))))
        if not _WINDOWS:
            self._require_whole()
            self._is_torn = True
            with _closed_if_it_fails:
                os.set_blocking(self._pipe.fileno(), True)  # macOS waits for an acknowledgement
                reduction.send_handle(self._pipe, handle, pid)
                os.set_blocking(self._pipe.fileno(), self._check is None)
            self._is_torn = False

    def receive_block(self) -> Any:
        """Map the block that the other end sends; return its memory."""
        size_bytes, handle = pickle.loads(self.receive()[1])
        if _WINDOWS:
            return SharedBlock.map(size_bytes, handle)
        with _closed_if_it_fails:
            descriptor = reduction.recv_handle(self._pipe)
        try:
            return SharedBlock.map(size_bytes, descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._pipe.close()
        self._check = None  # whoever made it has this channel: a cycle, which would keep memory

    def _require_whole(self) -> None:
        if self._is_torn:
            raise TornError

    def _wait(self) -> None:
        while True:
            with _closed_if_it_fails:
                if self._pipe.poll(_LOOK_S):
                    return
            try:
                self._check()  # type: ignore[misc]
            except WorkerDied:
                if not self.has_message():  # what it said before it ended
                    raise

    def _receive_whole(self) -> tuple[int, bytes]:
        if self._check is not None:
            self._wait()
        with _closed_if_it_fails:
            message = self._pipe.recv_bytes()
        return _HEADER.unpack_from(message)[0], message[_HEADER.size :]

    def _read_until(self, size_bytes: int) -> None:
        """Read until the message at hand has so many bytes; what has come is kept if we leave."""
        while len(self._arrived) < size_bytes:
            if self._check is not None:
                self._wait()
            missing = min(size_bytes - len(self._arrived), _CHUNK_BYTES)
            self._is_torn = True  # an interruption right here would lose bytes
            with _closed_if_it_fails:
                part = os.read(self._pipe.fileno(), missing)
            self._arrived += part
            self._is_torn = False
            if not part:
                raise ChannelClosedError

    def _write(self, data: bytes, wake: Callable[[], None]) -> None:
        if _WINDOWS:
            with _closed_if_it_fails:
                self._pipe.send_bytes(data)
            return
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._pipe.fileno(), view[:_CHUNK_BYTES]) :]
                continue
            except BlockingIOError:
                pass
            except OSError as error:
                raise ChannelClosedError from error
            wake()
            self._wait_until_writable()

    def _wait_until_writable(self) -> None:
        import select

        poll = select.poll()
        with _closed_if_it_fails:
            poll.register(self._pipe.fileno(), select.POLLOUT)
        while not poll.poll(_LOOK_S * 1000):
            self._check()  # type: ignore[misc]


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
            self._incoming.wait(_LOOK_S)
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


_WINDOWS = sys.platform == "win32"
