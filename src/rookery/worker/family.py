"""A worker and the processes that its envs start, which end with it.

On POSIX they are a process group, which the worker leads. On Windows they are whatever the system
says to come of it: of a process that an env's child has started, and whose parent has ended,
nobody can say that.
"""

from __future__ import annotations

import os
import signal
import sys

import psutil

if sys.platform == "win32":

    def lead_family() -> None:
        """Have processes that envs start belong to a family that can be ended with this one."""

    def end_own_family(exit_code: int) -> None:
        """End this process, and whatever it has started."""
        _kill_descendants(psutil.Process())
        os._exit(exit_code)

    class Family:
        """The family of a child process, as its parent sees it.

        Args:
            pid: of the child. While somebody has a handle of it, the number names nobody else.
        """

        def __init__(self, pid: int) -> None:
            try:
                self._process: psutil.Process | None = psutil.Process(pid)
            except psutil.Error:
                self._process = None

        def kill(self) -> bool:
            """End whatever the child has started; False: the child itself is still to be ended."""
            if self._process is not None:
                _kill_descendants(self._process)
            return False

    def _kill_descendants(process: psutil.Process) -> None:
        try:
            descendants = process.children(recursive=True)
        except psutil.Error:  # it has ended, and this psutil does not look for its children then
            return
        for descendant in descendants:
            try:
                descendant.kill()
            except psutil.Error:  # it was quicker, or belongs to another user
                continue

else:

    def lead_family() -> None:
        """Have processes that envs start belong to a family that can be ended with this one."""
        os.setpgid(0, 0)

    def end_own_family(exit_code: int) -> None:
        """End this process, and whatever it has started."""
        os.killpg(0, signal.SIGKILL)
        os._exit(exit_code)

    class Family:
        """The family of a child process, as its parent sees it.

        Args:
            pid: of the child.
        """

        def __init__(self, pid: int) -> None:
            self._pid = pid

        def kill(self) -> bool:
            """End all of it; False where the child may still be to be ended."""
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return False  # nobody is left, macOS says it the second way, or it leads none yet
            return True
