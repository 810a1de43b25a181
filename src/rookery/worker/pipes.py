"""Pipes between processes, and waiting for them, as each system has it.

On POSIX a pipe is a pair of connected sockets that carry bytes, and descriptors with them. On
Windows it carries whole messages, and what is sent waits until there is room, for a reader who may
never come. There, a Ctrl-C whose handler raises nothing ends a wait with an InterruptedError, and a
wait takes no more than some sixty handles; elsewhere Python goes on waiting by itself (PEP 475).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any

LOOK_S = 0.1  # how often whoever waits looks at other things

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection

    PipeEnd = PipeConnection
else:
    import select
    import socket
    from multiprocessing.connection import Connection

    PipeEnd = Connection

_MOST_HANDLES = 60  # Windows waits for 64, of which Python and the system take some
_TURN_S = 0.005  # how long one of several groups of handles is waited for
_ROOM_S = 0.001  # after which a message is said to need a reader
_SMALL_BYTES = 4096  # of a message for which a pipe of Windows (8192 bytes) has room


class ChannelClosedError(Exception):
    """The other side is gone. Never reaches a user."""


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


if sys.platform == "win32":

    def wait(objects: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Those that can be read, or have ended, once there is one; empty if the time is over."""
        end = None if timeout_s is None else time.perf_counter() + timeout_s
        while True:
            left_s = None if end is None else max(end - time.perf_counter(), 0.0)
            try:
                ready = _wait_in_groups(objects, left_s)
            except InterruptedError:  # its handler has dealt with it
                continue
            if ready or (end is not None and time.perf_counter() >= end):
                return ready

else:

    def wait(objects: Sequence[Any], timeout_s: float | None = None) -> list[Any]:
        """Those that can be read, or have ended, once there is one; empty if the time is over."""
        return connection.wait(objects, timeout_s)


def _wait_in_groups(objects: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Wait for any number of objects, or for one of many groups of them for a moment."""
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
    """Whether something can be read; False after that time, or a little before."""
    with _closed_if_it_fails:
        try:
            return pipe.poll(timeout_s)
        except InterruptedError:  # on Windows, see above
            return False


# The functions below take a `check`, which is called ten times a second as long as there is no
# room, and a `wake`, called first of all; what these raise ends the writing in the middle of the
# data. Without a check, the system waits.
Check = Callable[[], None] | None
Wake = Callable[[], None]

if sys.platform == "win32":

    def begin(pipe: PipeEnd, check: Check) -> None:
        """Make a pipe ready to be used with a check."""

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
        sender.start()  # it ends at the latest when the reader does
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
        """Read a message that has come."""
        with _closed_if_it_fails:
            return pipe.recv_bytes()

else:
    _CHUNK_BYTES = 2**18

    def begin(pipe: PipeEnd, check: Check) -> None:
        """Make a pipe ready to be used with a check."""
        if check is not None:
            os.set_blocking(pipe.fileno(), False)

    def write(pipe: PipeEnd, data: bytes, wake: Wake, check: Check) -> None:
        """Write all of some data."""
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
        """Read some bytes, so many at most; empty at the end of all."""
        with _closed_if_it_fails:
            return os.read(pipe.fileno(), min(size_bytes, _CHUNK_BYTES))

    def send_descriptor(pipe: PipeEnd, descriptor: int, check: Check) -> None:
        """Send a descriptor, which must stay open until the other side has made use of it.

        Not as ``multiprocessing`` does, which on macOS waits for a byte that says that it came: a
        message of the other side may be on its way, of which that would take the first byte.
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
        """Receive a descriptor."""
        with (
            _closed_if_it_fails,
            socket.fromfd(pipe.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as end,
        ):
            _, descriptors, _, _ = socket.recv_fds(end, 1, 1)
        if not descriptors:  # the other side has ended, or this process can open no more
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
