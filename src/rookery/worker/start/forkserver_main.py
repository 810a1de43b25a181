"""Main function of a fork server: import, fork a child for every request, and report its exit code.

The caller's side is ``forkserver.py``. A request is one byte, the number of descriptors that come
with it, and these descriptors:

1. where the server writes the child's pid and later its exit code,
2. where the child reads what to run,
3. the resource tracker's descriptor,
4. the descriptors for the child itself.

The answer is the number of the error that prevented the fork, or 0. Until then the caller keeps the
descriptors open, because macOS may lose descriptors that are closed while they are sent.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import connection, forkserver, resource_tracker, spawn, util
from typing import NoReturn

from rookery.worker.start.forkserver import ANSWER

assert sys.platform != "win32", "Windows has no fork"

_MAX_DESCRIPTORS = 250  # in one message; Linux allows 253


def main(control_descriptor: int, preload: Sequence[str]) -> None:
    """Run a fork server until its caller closes the socket.

    Args:
        control_descriptor: descriptor of the socket for requests.
        preload: modules to import first.
    """
    for name in preload:
        with suppress(Exception):  # the workers import it again and report the error
            importlib.import_module(name)
    with socket.socket(fileno=control_descriptor) as control:
        _Server(control).run()


class _Server:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._wake_r, self._wake_w = socket.socketpair()
        self._children: dict[int, int] = {}  # pid -> descriptor that its exit code is written to

    def run(self) -> None:
        self._wake_r.setblocking(False)
        self._wake_w.setblocking(False)
        signal.set_wakeup_fd(self._wake_w.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # if ignored, there are no exit codes
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with self._wake_r, self._wake_w:
            while True:
                ready = connection.wait([self._control, self._wake_r])
                if self._wake_r in ready:
                    self._wake_r.recv(4096)
                    self._report_exits()
                if self._control in ready and not self._serve_request():
                    signal.set_wakeup_fd(-1)
                    return

    def _report_exits(self) -> None:
        with suppress(ChildProcessError):  # there are no more children
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                descriptor = self._children.pop(pid, None)
                if descriptor is not None:
                    _write_number(descriptor, os.waitstatus_to_exitcode(status))
                    os.close(descriptor)

    def _serve_request(self) -> bool:
        """Fork a child for a request. Return False if the caller is gone."""
        try:
            message, received, _, _ = socket.recv_fds(self._control, 1, _MAX_DESCRIPTORS)
        except ConnectionResetError:
            return False
        if not message:
            return False
        for descriptor in received:
            os.set_inheritable(descriptor, False)
        error_number = 0
        try:
            if len(received) < message[0]:  # this process has too many open
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            pid = self._fork(*received)
        except OSError as error:
            error_number = error.errno or errno.EAGAIN
        else:
            _write_number(received[0], pid)
            self._children[pid] = received.pop(0)
        for descriptor in received:
            os.close(descriptor)
        with suppress(BrokenPipeError):  # the caller is gone, which the next read shows
            self._control.send(ANSWER.pack(error_number))
        return True

    def _fork(self, status_w: int, data_r: int, tracker: int, *inherited: int) -> int:
        """Fork a child and return its pid."""
        pid = os.fork()
        if pid == 0:
            for descriptor in (status_w, *self._children.values()):
                os.close(descriptor)
            self._run_child(data_r, tracker, inherited)
        return pid

    def _run_child(self, data_r: int, tracker: int, inherited: Sequence[int]) -> NoReturn:
        code: int | str | None = 1
        caller = data_r
        try:
            self._leave_the_server()
            _reset_exit_functions()
            resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]
            forkserver._forkserver._inherited_fds = list(inherited)  # type: ignore[attr-defined]
            caller = os.dup(data_r)  # becomes readable, at end of file, once the caller is gone
            code = spawn._main(data_r, caller)
        except SystemExit as leaving:
            code = leaving.code
        except Exception:
            if not connection.wait([caller], 0):  # otherwise the caller is gone
                sys.excepthook(*sys.exc_info())
        finally:
            try:
                _run_exit_functions()
            finally:
                os._exit(code if isinstance(code, int) else 1)

    def _leave_the_server(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (self._control, self._wake_r, self._wake_w):
            end.close()


def _reset_exit_functions() -> None:
    """Remove the server's exit functions in a child.

    Since Python 3.13 ``multiprocessing`` cleans up after a child (its children and temporary files)
    in an exit function.
    """
    if sys.version_info >= (3, 13):
        atexit._clear()
        atexit.register(util._exit_function)  # type: ignore[attr-defined]


def _run_exit_functions() -> None:
    if sys.version_info >= (3, 13):
        atexit._run_exitfuncs()


def _write_number(descriptor: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the caller no longer listens
        forkserver.write_signed(descriptor, number)
