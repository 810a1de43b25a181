"""PipeChannel: messages between two processes. Each has the number of its order or request.

A worker may die or be stopped in the middle of a message, and processes that its envs started may
keep its end of the pipe open. So the caller never blocks in a system call for long: every tenth of
a second it calls ``check``, which raises if the message cannot come.
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

_HEADER = struct.Struct("<qq")  # number, and count of bytes that follow


class TornError(Exception):
    """An interruption cut a message short; the channel is unusable. Never reaches a user."""


class PipeChannel:
    """A channel to another process.

    Args:
        pipe: this end of the pipe.
        check: called ten times a second while waiting. An exception that it raises ends the wait.
            None blocks; this is for the worker, which exits together with its caller.
        by_value: whether to pickle objects of the caller's script by value, because the other side
            has not run that script.
    """

    def __init__(
        self, pipe: PipeEnd, check: Callable[[], None] | None = None, by_value: bool = False
    ) -> None:
        self._pipe = pipe
        self._check = check
        self._is_torn = False
        self._arrived = bytearray()  # the part of an incomplete message
        self.encode: Callable[[Any], bytes] = pickled_for_workers if by_value else pickled
        self.decode: Callable[[bytes], Any] = pickle.loads
        pipes.begin(pipe, check)

    def failure(self, error: BaseException) -> bytes:
        return self.encode(Failure.of(error))

    @property
    def pipe(self) -> PipeEnd:
        """The pipe, for waiting only. It is readable once a message has come."""
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
            messages[number] = bytes(self._arrived[_HEADER.size :])  # doing this twice does no harm
            self._arrived = bytearray()

    @property
    def is_torn(self) -> bool:
        return self._is_torn

    def has_message(self) -> bool:
        return pipes.can_read(self._pipe)

    def send_block(self, block: SharedBlock) -> None:
        """Give the process at the other end access to a block. Close the block only afterwards."""
        size_bytes, handle = block.address
        if sys.platform == "win32":
            self.send(0, pickle.dumps((size_bytes, handle)))
        else:
            self.send(0, pickle.dumps(size_bytes))
            self._is_torn = True
            pipes.send_descriptor(self._pipe, handle, self._check)
            self._is_torn = False

    def receive_block(self) -> Any:
        """Map the block that the other end sends, and return its memory."""
        address = pickle.loads(self.receive()[1])
        if sys.platform == "win32":
            memory = SharedBlock.map(*address)
        else:
            descriptor = pipes.receive_descriptor(self._pipe)
            try:
                memory = SharedBlock.map(address, descriptor)
            finally:
                os.close(descriptor)
        return memory

    def close(self) -> None:
        self._pipe.close()
        self._check = None  # breaks a reference cycle, which would keep memory

    def _require_whole(self) -> None:
        if self._is_torn:
            raise TornError

    def _wait(self) -> None:
        while not pipes.can_read(self._pipe, LOOK_S):
            try:
                self._check()  # type: ignore[misc]
            except WorkerDied:
                if not self.has_message():  # one that it sent before it exited
                    raise

    if sys.platform != "win32":

        def _read_until(self, size_bytes: int) -> None:
            """Read until the message has a number of bytes. Bytes that have come are kept."""
            while len(self._arrived) < size_bytes:
                if self._check is not None:
                    self._wait()
                self._is_torn = True  # an interruption here would lose bytes
                part = pipes.read(self._pipe, size_bytes - len(self._arrived))
                self._arrived += part
                self._is_torn = False
                if not part:
                    raise ChannelClosedError
