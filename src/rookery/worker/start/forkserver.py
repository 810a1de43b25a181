"""ForkServer: a process that has imported what workers need, and forks them.

It works like the fork server of ``multiprocessing``: the caller sends descriptors, the server
forks, and the child unpickles what to run. But the caller reaches it through a pair of connected
sockets instead of an address in the file system. So a killed program leaves no files behind, no
folder for temporary files is needed, and no other user of the machine can request a process.

The server exits when the caller closes its socket or exits. Its side is in ``forkserver_main.py``.
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

ANSWER = struct.Struct("i")  # answer to a request: an error number, or 0
_LEAVING_GRACE_S = 5.0
_COMMAND = (
    "import sys; sys.path[:] = {}; "
    "from rookery.worker.start.forkserver_main import main; main({}, {})"
)


# Keeps a Ctrl-C in the terminal away from servers. A new session would do so as well, but Linux
# schedules sessions against each other ("autogroup"): on two busy cores, a step then took 1.5 times
# as long.
_AWAY_FROM_TERMINAL: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
)


class ForkServer:
    """The caller's side of one server, which starts at once and serves until it is stopped.

    Args:
        preload: modules to import before the first fork. If one cannot be imported, the workers
            report the error.
        environment: the server's environment variables.

    Raises:
        OSError: if no process can be started.
    """

    def __init__(self, preload: Sequence[str], environment: Mapping[str, str]) -> None:
        executable = spawn.get_executable()
        if not executable:
            raise ConfigError(
                "No Python interpreter is known for workers: sys.executable is empty. "
                "Set one with multiprocessing.set_executable(path), or use start_method='fork'."
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
        """Return whether the server runs."""
        return self._process.poll() is None

    def connect_to_new_process(self, descriptors: Sequence[int]) -> tuple[int, int]:
        """Fork a child; replaces the function of this name in ``multiprocessing``.

        Args:
            descriptors: descriptors for the child, in this order.

        Returns:
            The descriptor from which to read the child's pid and later its exit code, as signed
            numbers, and the descriptor from which the child reads what to run.

        Raises:
            ConnectionError: if the server has exited.
            OSError: if the system allows the server no more processes or descriptors.
        """
        tracker = resource_tracker.getfd()
        assert tracker is not None  # getfd() has started it
        status_r, status_w = os.pipe()
        child_r, data_w = os.pipe()
        sent = [status_w, child_r, tracker, *descriptors]
        try:
            if sys.platform != "win32":  # Windows has no fork
                socket.send_fds(self._control, [bytes([len(sent)])], sent)
            answer = self._control.recv(ANSWER.size)  # until then the sent descriptors stay open
            if len(answer) < ANSWER.size:
                raise ConnectionResetError("the fork server has exited")
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
        """Stop the server. Its children exit, too, because they notice it."""
        self._end()

    def disown(self) -> None:
        """Leave the server to the parent process. Call this in a forked copy of the caller."""
        self._end.detach()
        self._control.close()
        self._process.poll()  # not a child of this process, so it counts as exited


def _end(control: socket.socket, server: subprocess.Popen[bytes]) -> None:
    control.close()
    try:
        server.wait(_LEAVING_GRACE_S)
    except subprocess.TimeoutExpired:  # it was stopped, or hangs in an import
        server.kill()
        server.wait()


def search_path() -> list[str]:
    """Return ``sys.path`` for another process, with "" replaced by the first directory."""
    original = process.ORIGINAL_DIR  # type: ignore[attr-defined]
    here = "" if original is None else str(original)
    entries: list[object] = [*sys.path]  # imports ignore entries that are not strings
    return [entry or here for entry in entries if isinstance(entry, str)]
