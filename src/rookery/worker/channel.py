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
from collections.abc import Callable
from typing import Any

from rookery.common.pickling import pickled, pickled_for_workers
from rookery.errors import WorkerDied
from rookery.shared import SharedBlock
from rookery.worker import pipes
from rookery.worker.failures import Failure
from rookery.worker.pipes import LOOK_S, ChannelClosedError, PipeEnd

_HEADER = struct.Struct("<qq")  # the number and how many bytes follow


class TornError(Exception):
    """An interruption cut a message short; nothing more can be said. Never reaches a user."""


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
        self, pipe: PipeEnd, check: Callable[[], None] | None = None, by_value: bool = False
    ) -> None:
        self._pipe = pipe
        self._check = check
        self._is_torn = False
        self._arrived = bytearray()  # of a message that is not yet whole
        self.encode: Callable[[Any], bytes] = pickled_for_workers if by_value else pickled
        self.decode: Callable[[bytes], Any] = pickle.loads
        pipes.begin(pipe, check)

    def failure(self, error: BaseException) -> bytes:
        return self.encode(Failure.of(error))

    @property
    def pipe(self) -> PipeEnd:
        """Can be read once a message has come; for waiting, not for reading."""
        return self._pipe

    def send(self, number: int, payload: bytes, wake: Callable[[], None] = lambda: None) -> None:
        self._require_whole()
        self._is_torn = True  # until all of it is sent
        pipes.write(self._pipe, _HEADER.pack(number, len(payload)) + payload, wake, self._check)
        self._is_torn = False

    def receive(self) -> tuple[int, bytes]:
        messages: dict[int, bytes] = {}
        self.receive_into(messages)
        return messages.popitem()

    def receive_into(self, messages: dict[int, Any]) -> None:
        self._require_whole()
        if sys.platform == "win32":
            if self._check is not None:
                self._wait()
            message = pipes.read_message(self._pipe)
            messages[_HEADER.unpack_from(message)[0]] = message[_HEADER.size :]
        else:
            self._read_until(_HEADER.size)
            number, length = _HEADER.unpack_from(self._arrived)
            self._read_until(_HEADER.size + length)
            messages[number] = bytes(self._arrived[_HEADER.size :])  # twice does no harm
            self._arrived = bytearray()

    @property
    def is_torn(self) -> bool:
        return self._is_torn

    def has_message(self) -> bool:
        return pipes.can_read(self._pipe)

    def send_block(self, block: SharedBlock) -> None:
        """Give the process at the other end access to a block, which must not be closed before."""
        size_bytes, handle = block.address
        if sys.platform == "win32":
            self.send(0, pickle.dumps((size_bytes, handle)))
        else:
            self.send(0, pickle.dumps(size_bytes))
            self._is_torn = True
            pipes.send_descriptor(self._pipe, handle, self._check)
            self._is_torn = False

    def receive_block(self) -> Any:
        """Map the block that the other end sends; return its memory."""
        told = pickle.loads(self.receive()[1])
        if sys.platform == "win32":
            memory = SharedBlock.map(*told)
        else:
            descriptor = pipes.receive_descriptor(self._pipe)
            try:
                memory = SharedBlock.map(told, descriptor)
            finally:
                os.close(descriptor)
        return memory

    def close(self) -> None:
        self._pipe.close()
        self._check = None  # whoever made it has this channel: a cycle, which would keep memory

    def _require_whole(self) -> None:
        if self._is_torn:
            raise TornError

    def _wait(self) -> None:
        while not pipes.can_read(self._pipe, LOOK_S):
            try:
                self._check()  # type: ignore[misc]
            except WorkerDied:
                if not self.has_message():  # what it said before it ended
                    raise

    if sys.platform != "win32":

        def _read_until(self, size_bytes: int) -> None:
            """Read until the message at hand has so many bytes; what has come is kept."""
            while len(self._arrived) < size_bytes:
                if self._check is not None:
                    self._wait()
                self._is_torn = True  # an interruption right here would lose bytes
                part = pipes.read(self._pipe, size_bytes - len(self._arrived))
                self._arrived += part
                self._is_torn = False
                if not part:
                    raise ChannelClosedError
