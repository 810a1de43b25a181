"""A worker and the processes that its envs start, which end with it.

On POSIX they are a process group, which the worker leads. On Windows they are whatever the system
says to come of it: of a process that an env's child has started, and whose parent has ended,
nobody can say that.
"""

from __future__ import annotations

import math
import os
import signal
import sys

if sys.platform == "win32":
    import psutil

    def lead_family() -> None:
        """Have processes that envs start belong to a family that can be ended with this one."""

    def end_own_family(exit_code: int) -> None:
        """End this process, and whatever it has started."""
        Family(os.getpid()).kill()
        os._exit(exit_code)

    class Family:
        """The family of a process, as itself or its parent sees it.

        Args:
            pid: of the process. While somebody has a handle of it, the number names nobody else.
        """

        def __init__(self, pid: int) -> None:
            self._pid, self._began = pid, _began(pid)

        def kill(self) -> bool:
            """End whatever the process has started; False: it itself is still to be ended."""
            for descendant in self._descendants():
                try:
                    psutil.Process(descendant).kill()
                except psutil.Error:  # it was quicker, or belongs to another user
                    continue
            return False

        def _descendants(self) -> list[int]:
            """Also of a process that has ended, unlike what psutil itself tells."""
            children: dict[int, list[int]] = {}
            for pid, parent in psutil._ppid_map().items():  # type: ignore[attr-defined]
                children.setdefault(parent, []).append(pid)
            found, left = [], [(self._pid, self._began)]
            while left:
                parent, began = left.pop()
                for pid in children.pop(parent, []):
                    begun = _began(pid)
                    if began <= begun < math.inf:  # else its parent had this number before
                        found.append(pid)
                        left.append((pid, begun))
            return found

    def _began(pid: int) -> float:
        """When a process began; infinite where nobody can tell."""
        try:
            return psutil.Process(pid).create_time()
        except psutil.Error:
            return math.inf

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
