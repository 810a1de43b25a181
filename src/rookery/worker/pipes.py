"""Pipes between processes, and waiting for them, on each system.

On POSIX a pipe is a pair of connected sockets that transport bytes and descriptors. On Windows it
transports whole messages, and sending waits until there is room, for a reader that may never come.
On Windows, a Ctrl-C whose handler raises nothing ends a wait with an InterruptedError, and a wait
takes at most about 60 handles. On other systems Python continues the wait by itself (PEP 475).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

LOOK_S = 0.1  # how often a wait checks other things

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection

    PipeEnd = PipeConnection
else:
    import select
    import socket
    from multiprocessing.connection import Connection

    PipeEnd = Connection

_MOST_HANDLES = 60  # Windows waits for 64, of which Python and the system take some
_TURN_S = 0.005  # how long one of several groups of handles is waited for in turn
_ROOM_S = 0.001  # a message that takes longer to send needs a reader
_SMALL_BYTES = 4096  # a pipe of Windows (8192 bytes) has room for a message of this size


class ChannelClosedError(Exception):
    """The other side is gone. Never reaches a user."""


class _ClosedIfItFails:
    """Raises ChannelClosedError if a system call fails.

    It contains system calls only. A ``check`` may raise an OSError too (a WorkerTimeout is a
    TimeoutError), which must not be mistaken for an error of the pipe.
    """

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        if isinstance(error, (OSError, EOFError)):
            raise ChannelClosedError from error


_closed_if_it_fails = _ClosedIfItFails()


if sys.platform == "win32":

    def wait(objects: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Wait until objects can be read or have exited, and return these; none at time-out."""
        end = None if timeout_s is None else time.perf_counter() + timeout_s
        while True:
            left_s = None if end is None else max(end - time.perf_counter(), 0.0)
            try:
                ready = _wait_in_groups(objects, left_s)
            except InterruptedError:  # the signal handler has run
                continue
            if ready or (end is not None and time.perf_counter() >= end):
                return ready

else:

    def wait(objects: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Wait until objects can be read or have exited, and return these; none at time-out."""
        return connection.wait(objects, timeout_s)


def _wait_in_groups(objects: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Wait for any number of objects; for more than 60, poll them in groups."""
    if len(objects) <= _MOST_HANDLES:
        return connection.wait(objects, timeout_s)
    starts = range(0, len(objects), _MOST_HANDLES)
    groups = [objects[start : start + _MOST_HANDLES] for start in starts]
    ready = [found for group in groups for found in connection.wait(group, 0)]
    if ready or timeout_s == 0:
        return ready
    turn_s = _TURN_S if timeout_s is None else min(_TURN_S, timeout_s)
    return next(filter(None, (connection.wait(group, turn_s) for group in groups)), [])


def can_read(pipe: PipeEnd, timeout_s: float = 0.0) -> bool:
    """Return whether something can be read. False after the time-out, or a little before."""
    with _closed_if_it_fails:
        try:
            return pipe.poll(timeout_s)
        except InterruptedError:  # on Windows only
            return False


# If the pipe has no room, the functions below call `wake`, and then `check` ten times a second. If
# these raise, writing ends in the middle of the data. With None as `check` the functions block.
Check = Callable[[], None] | None
Wake = Callable[[], None]

if sys.platform == "win32":

    def begin(pipe: PipeEnd, check: Check) -> None:
        """Prepare a pipe for use with a check."""

    def write(pipe: PipeEnd, data: bytes, wake: Wake, check: Check) -> None:
        """Write a message."""
        if check is None or len(data) <= _SMALL_BYTES:
            with _closed_if_it_fails:
                pipe.send_bytes(data)
            return
        failures: list[OSError] = []

        def send() -> None:
            try:
                pipe.send_bytes(data)
            except OSError as error:
                failures.append(error)

        sender = threading.Thread(target=send, name="rookery-send", daemon=True)
        sender.start()  # ends at the latest when the reader exits
        sender.join(_ROOM_S)
        if sender.is_alive():
            wake()
        while sender.is_alive():
            sender.join(LOOK_S)
            if sender.is_alive():
                check()
        if failures:
            raise ChannelClosedError from failures[0]

    def read_message(pipe: PipeEnd) -> bytes:
        """Return a message that has come."""
        with _closed_if_it_fails:
            return pipe.recv_bytes()

else:
    _CHUNK_BYTES = 2**18

    def begin(pipe: PipeEnd, check: Check) -> None:
        """Prepare a pipe for use with a check."""
        if check is not None:
            os.set_blocking(pipe.fileno(), False)

    def write(pipe: PipeEnd, data: bytes, wake: Wake, check: Check) -> None:
        """Write data completely."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(pipe.fileno(), view[:_CHUNK_BYTES]) :]
                continue
            except BlockingIOError:
                pass
            except OSError as error:
                raise ChannelClosedError from error
            wake()
            _await_room(pipe, check)

    def read(pipe: PipeEnd, size_bytes: int) -> bytes:
        """Return up to ``size_bytes`` bytes; none at the end of the stream."""
        with _closed_if_it_fails:
            return os.read(pipe.fileno(), min(size_bytes, _CHUNK_BYTES))

    def send_descriptor(pipe: PipeEnd, descriptor: int, check: Check) -> None:
        """Send a descriptor, which must stay open until the other side has used it.

        ``multiprocessing`` waits for a byte of acknowledgement on macOS. That could be the first
        byte of a message that the other side is sending, so it is not used here.
        """
        with _closed_if_it_fails:
            end = socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
        with end:
            while True:
                try:
                    socket.send_fds(end, [b"d"], [descriptor])
                    return
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise ChannelClosedError from error
                _await_room(pipe, check)

    def receive_descriptor(pipe: PipeEnd) -> int:
        """Return a received descriptor."""
        with (
            _closed_if_it_fails,
            socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end,
        ):
            _, descriptors, _, _ = socket.recv_fds(end, 1, 1)
        if not descriptors:  # the other side is gone, or this process has too many open
            raise ChannelClosedError
        os.set_inheritable(descriptors[0], False)
        return descriptors[0]

    def _await_room(pipe: PipeEnd, check: Check) -> None:
        poll = select.poll()
        with _closed_if_it_fails:
            poll.register(pipe.fileno(), select.POLLOUT)
        while not poll.poll(LOOK_S * 1000):
            if check is not None:
                check()
