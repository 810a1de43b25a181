"""A fork server of our own: a process that has imported what workers need, and forks them.

It works as the one of ``multiprocessing`` does: the caller sends descriptors, the server forks, and
the child unpickles what it is to run. But the caller reaches it through a pair of connected sockets
that nobody else has, not through an address. So nothing lies in the file system that a killed
program could leave there, no folder for temporary files is needed, and no other user of the machine
can ask for a process.

The server ends when the caller closes its socket, by ending in whatever way. What it does is in
``forkserver_main.py``.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing import process, resource_tracker, spawn, util
from typing import Any

from rookery.errors import ConfigError

ANSWER = struct.Struct("i")  # to a request: an error number, or 0
_LEAVING_GRACE_S = 5.0
_COMMAND = (
    "import sys; sys.path[:] = {}; "
    "from rookery.worker.start.forkserver_main import main; main({}, {})"
)


# A Ctrl-C in the terminal is not for a server. A session of its own would keep it away as well, but
# Linux schedules sessions against each other ("autogroup"): on two busy cores a step then took 1.5
# times as long.
_AWAY_FROM_TERMINAL: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
)


class ForkServer:
    """The caller's side of one server. It is started at once and serves until it is stopped.

    Args:
        preload: modules to import before the first fork; one that cannot be imported is left to
            the workers, which say what is wrong with it.
        environment: the server's environment variables.

    Raises:
        OSError: when no process can be started.
    """

    def __init__(self, preload: Sequence[str], environment: Mapping[str, str]) -> None:
        executable = spawn.get_executable()
        if not executable:
            raise ConfigError(
                "No Python interpreter is known that could run workers (sys.executable is empty). "
                "Name one with multiprocessing.set_executable(path), or use start_method='fork'."
            )
        flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self._control, theirs = socket.socketpair()
        try:
            command = _COMMAND.format(search_path(), theirs.fileno(), list(preload))
            self._process = subprocess.Popen(
                [os.fsdecode(executable), *flags, "-c", command],
                stdin=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                **_AWAY_FROM_TERMINAL,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            theirs.close()
        self._end = weakref.finalize(self, _end, self._control, self._process)

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def connect_to_new_process(self, descriptors: Sequence[int]) -> tuple[int, int]:
        """Have a child forked; what ``multiprocessing``'s function of this name promises.

        Args:
            descriptors: that the child shall have, in this order.

        Returns:
            The descriptor that the child's pid and later its exit code can be read from, as
            signed numbers, and the one that the child reads what it is to run from.

        Raises:
            ConnectionError: when the server has ended.
            OSError: when the system allowed it no further process or descriptor.
        """
        tracker = resource_tracker.getfd()
        assert tracker is not None  # it runs once it was asked for
        status_r, status_w = os.pipe()
        child_r, data_w = os.pipe()
        sent = [status_w, child_r, tracker, *descriptors]
        try:
            if sys.platform != "win32":  # which has no fork, and no such server
                socket.send_fds(self._control, [bytes([len(sent)])], sent)
            answer = self._control.recv(ANSWER.size)  # until then what was sent stays open
            if len(answer) < ANSWER.size:
                raise ConnectionResetError("the server has ended")
            (error_number,) = ANSWER.unpack(answer)
            if error_number:
                raise OSError(error_number, os.strerror(error_number))
        except BaseException:
            os.close(status_r)
            os.close(data_w)
            raise
        finally:
            os.close(status_w)
            os.close(child_r)
        return status_r, data_w

    def stop(self) -> None:
        """End the server and, since they notice that, the children that it has forked."""
        self._end()

    def disown(self) -> None:
        """Leave the server to the process that has started it; for a forked copy of that one."""
        self._end.detach()
        self._control.close()
        self._process.poll()  # it is no child of ours, and so counts as ended


def _end(control: socket.socket, server: subprocess.Popen[bytes]) -> None:
    control.close()
    try:
        server.wait(_LEAVING_GRACE_S)
    except subprocess.TimeoutExpired:  # it was stopped, or hangs in an import
        server.kill()
        server.wait()


def search_path() -> list[str]:
    """``sys.path`` for another process: the entry for "here" means where the program began."""
    original = process.ORIGINAL_DIR  # type: ignore[attr-defined]
    here = "" if original is None else str(original)
    entries: list[object] = [*sys.path]  # other things than strings are ignored by imports
    return [entry or here for entry in entries if isinstance(entry, str)]
