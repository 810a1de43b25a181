"""ThreadEvent: an event between two threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BLOCK_SLICE_S = 0.1  # how often a wait asks whether to continue


class ThreadEvent:
    """An event that is set or clear: a hint that something has changed.

    A wait blocks at once. Trying first, as a :class:`~rookery.worker.wait.event.ProcessEvent` does,
    would take the interpreter's lock from the thread that should set the event.

    The event is a lock that is free while the event is set. Taking and freeing it are one step
    each, so an exception that a signal handler raises at any line leaves the event usable.
    """

    def __init__(self) -> None:
        self._clear = threading.Lock()
        self._clear.acquire()

    def set(self) -> None:
        """Wake the waiter, or the next one."""
        try:
            self._clear.release()
        except RuntimeError:  # it is set already
            return

    def set_if_clear(self) -> None:
        """Set the event. Setting it twice has no further effect."""
        self.set()

    def take(self) -> bool:
        """Reset the event, without waiting. Return whether it was set."""
        return self._clear.acquire(blocking=False)

    def clear(self) -> None:
        """Reset the event, while no thread sets it."""
        self._clear.acquire(blocking=False)

    def wait(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until the event is set, and reset it.

        Args:
            keep_waiting: called now and then while blocked; False ends the wait.
            deadline: a ``time.perf_counter()`` time that ends the wait, if any.

        Returns:
            True if the event was set; False if ``keep_waiting`` or the deadline ended the wait.
        """
        try:
            return self._wait(keep_waiting, deadline)
        except BaseException:
            self.set()  # it may have been reset just before; setting it once too often is harmless
            raise

    def _wait(self, keep_waiting: Callable[[], bool], deadline: float | None) -> bool:
        slice_s = _BLOCK_SLICE_S
        while True:
            if deadline is not None:
                slice_s = min(_BLOCK_SLICE_S, deadline - time.perf_counter())
            if self._clear.acquire(timeout=max(slice_s, 0.0)):
                return True
            if slice_s <= 0:
                return False
            if not keep_waiting():
                return self._clear.acquire(blocking=False)  # it may have been set just before
