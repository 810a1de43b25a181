"""Waiting for a semaphore with a time-out, on each system.

macOS has no ``sem_timedwait``. Python polls the semaphore instead, every 1 to 20 ms and less often
the longer the wait, so an answer is noticed up to 20 ms late. A wait without a time-out is woken at
once. So on macOS every wait has no time-out, and a thread that releases the semaphore ten times a
second ends it. That thread exists only during waits.

On Windows, a Ctrl-C whose handler raises nothing ends a wait with an InterruptedError.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

_TICK_S = 0.1


class _Wait:
    """A pending wait.

    Attributes:
        release: releases the semaphore that is waited for.
        is_ticked: whether the ticker released it to end the wait.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release
        self.is_ticked = False


class Ticker:
    """A thread that ends waits which have no time-out."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a signal handler may wait during another wait
        self._waits: set[_Wait] = set()
        self._pid = os.getpid()
        self._runs = False

    def acquire(self, semaphore: Any, timeout_s: float) -> bool:
        """Wait for a semaphore until the next tick or time-out. Return whether it was acquired."""
        if timeout_s < _TICK_S:  # polling is exact enough for short waits
            return bool(semaphore.acquire(True, timeout_s))
        if self._pid != os.getpid():
            self._forget()
        wait = _Wait(semaphore.release)
        try:
            if not self._add(wait):
                return bool(semaphore.acquire(True, timeout_s))
            semaphore.acquire()
        finally:
            with self._lock:
                self._waits.discard(wait)
        return not wait.is_ticked or bool(semaphore.acquire(False))  # released twice

    def _add(self, wait: _Wait) -> bool:
        """Add a wait that the ticker ends. Return False if its thread cannot be started."""
        with self._lock:
            if not self._runs:
                try:
                    threading.Thread(target=self._tick, name="rookery-ticks", daemon=True).start()
                except RuntimeError:  # the interpreter exits, or there are too many threads
                    return False
                self._runs = True
            self._waits.add(wait)
        return True

    def _tick(self) -> None:
        while True:
            time.sleep(_TICK_S)
            with self._lock:
                if not self._waits:
                    self._runs = False
                    return
                for wait in self._waits:
                    if not wait.is_ticked:
                        wait.is_ticked = True
                        wait.release()


_ticker = Ticker()

if sys.platform == "win32":

    def acquire_within(semaphore: Any) -> Callable[[float], bool]:
        """Return a function that waits for a semaphore, at most for its argument in seconds."""
        acquire: Callable[..., bool] = semaphore.acquire

        def acquire_once(timeout_s: float) -> bool:
            try:
                return acquire(True, timeout_s)
            except InterruptedError:  # the signal handler has run
                return False

        return acquire_once

elif sys.platform == "darwin":

    def acquire_within(semaphore: Any) -> Callable[[float], bool]:
        """Return a function that waits for a semaphore, at most for its argument in seconds."""
        return partial(_ticker.acquire, semaphore)

else:

    def acquire_within(semaphore: Any) -> Callable[[float], bool]:
        """Return a function that waits for a semaphore, at most for its argument in seconds."""
        return partial(semaphore.acquire, True)
