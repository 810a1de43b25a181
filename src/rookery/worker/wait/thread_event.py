"""ThreadBell: what a Doorbell is between processes, between two threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BLOCK_SLICE_S = 0.1  # how soon a waiter notices that nobody is left to ring


class ThreadBell:
    """A bell that remembers one ring at most: a hint that something has changed.

    A wait blocks at once. Trying first, as :class:`~rookery.worker.wait.event.Doorbell` does, would
    take the interpreter's lock from the very thread that is to ring.

    It rests on a lock that is free while a ring is remembered. Taking and freeing it are one step
    each, so an exception that a signal handler raises, anywhere, leaves the bell usable.
    """

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the waiter, or the next one."""
        try:
            self._silence.release()
        except RuntimeError:  # a ring is remembered already, which says as much as two
            return

    def ring_again(self) -> None:
        """The same: two rings are no more than one."""
        self.ring()

    def take_ring(self) -> bool:
        """Take a ring if one has come; whether one had."""
        return self._silence.acquire(blocking=False)

    def forget_rings(self) -> None:
        """Be silent; for when nobody is going to ring."""
        self._silence.acquire(blocking=False)

    def wait(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring.

        Args:
            anyone_left: asked now and then while blocked; False ends the wait.
            deadline: a ``time.perf_counter()`` time that ends the wait, if any.

        Returns:
            True if it rang, False if a ring can no longer come or the deadline passed.
        """
        try:
            return self._wait(anyone_left, deadline)
        except BaseException:
            self.ring()  # it may have rung before the exception came; one ring too many is harmless
            raise

    def _wait(self, anyone_left: Callable[[], bool], deadline: float | None) -> bool:
        slice_s = _BLOCK_SLICE_S
        while True:
            if deadline is not None:
                slice_s = min(_BLOCK_SLICE_S, deadline - time.perf_counter())
            if self._silence.acquire(timeout=max(slice_s, 0.0)):
                return True
            if slice_s <= 0:
                return False
            if not anyone_left():
                return self._silence.acquire(blocking=False)  # it may have rung just before it left
