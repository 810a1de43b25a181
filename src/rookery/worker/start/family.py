"""A worker and the processes that its envs start, which are killed together.

On POSIX they are a process group with the worker as leader. On Windows they are the descendants of
the worker that the system knows. The system does not know a grandchild after its parent has exited.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from contextlib import suppress

if sys.platform == "win32":
    import psutil

    def lead_family() -> None:
        """Prepare this process so that processes started by envs can be killed with it."""

    def end_own_family(exit_code: int) -> None:
        """Kill this process and all processes that it has started."""
        Family(os.getpid()).kill()
        os._exit(exit_code)

    class Family:
        """A process and its descendants.

        Args:
            pid: id of the process. No other process gets this id while a handle of it is open.
        """

        def __init__(self, pid: int) -> None:
            self._pid, self._began = pid, _began(pid)

        def kill(self) -> bool:
            """Kill the descendants. Return False: the process itself must be killed separately."""
            for descendant in self._descendants():
                with suppress(psutil.Error):  # it has exited, or belongs to another user
                    psutil.Process(descendant).kill()
            return False

        def _descendants(self) -> list[int]:
            """Return all descendants. psutil alone returns none for a process that has exited."""
            children: dict[int, list[int]] = {}
            for pid, parent in psutil._ppid_map().items():  # type: ignore[attr-defined]
                children.setdefault(parent, []).append(pid)
            found, left = [], [(self._pid, self._began)]
            while left:
                parent, began = left.pop()
                for pid in children.pop(parent, []):
                    begun = _began(pid)
                    if began <= begun < math.inf:  # otherwise its parent's id was reused
                        found.append(pid)
                        left.append((pid, begun))
            return found

    def _began(pid: int) -> float:
        """Return when a process started; infinity if unknown."""
        try:
            return psutil.Process(pid).create_time()
        except psutil.Error:
            return math.inf

else:

    def lead_family() -> None:
        """Prepare this process so that processes started by envs can be killed with it."""
        os.setpgid(0, 0)

    def end_own_family(exit_code: int) -> None:
        """Kill this process and all processes that it has started."""
        os.killpg(0, signal.SIGKILL)
        os._exit(exit_code)

    class Family:
        """A child process and the processes that it has started.

        Args:
            pid: id of the child.
        """

        def __init__(self, pid: int) -> None:
            self._pid = pid

        def kill(self) -> bool:
            """Kill all of them. Return False if the child may still run."""
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return False  # all have exited (PermissionError on macOS), or there is no group yet
            return True
