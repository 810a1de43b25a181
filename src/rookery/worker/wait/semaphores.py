"""To wait for a semaphore for some time, as each system has it.

macOS has no ``sem_timedwait``. In its place Python looks at the semaphore every one to twenty
milliseconds, the more rarely the longer the wait, so an answer is noticed up to twenty milliseconds
late. A wait without a limit is woken at once. So there, a wait is one without a limit, which is
ended in time by a thread that rings ten times a second; it exists only while somebody waits.

On Windows a Ctrl-C whose handler raises nothing ends a wait with an InterruptedError.
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
    """A wait under way.

    Attributes:
        release: rings what is waited for.
        is_ticked: whether it was rung to end the wait.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release
        self.is_ticked = False


class Ticker:
    """Ends waits that have no limit of their own."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()  # a handler of a signal may wait, too, amid another wait
        self._waits: set[_Wait] = set()
        self._pid = os.getpid()
        self._runs = False

    def acquire(self, semaphore: Any, timeout_s: float) -> bool:
        """Wait for a semaphore until a tick, or for so long; whether it was acquired."""
        if timeout_s < _TICK_S:  # looking at it now and then is as exact as that
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
        return not wait.is_ticked or bool(semaphore.acquire(False))  # of two rings one is ours

    def _add(self, wait: _Wait) -> bool:
        """Have a wait ended in time; False where no thread can be started to do so."""
        with self._lock:
            if not self._runs:
                try:
                    threading.Thread(target=self._tick, name="rookery-ticks", daemon=True).start()
                except RuntimeError:  # the interpreter ends, or there are too many threads
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
        """A function that waits for a semaphore, for so many seconds or a little less."""
        acquire: Callable[..., bool] = semaphore.acquire

        def acquire_once(timeout_s: float) -> bool:
            try:
                return acquire(True, timeout_s)
            except InterruptedError:  # its handler has dealt with it
                return False

        return acquire_once

elif sys.platform == "darwin":

    def acquire_within(semaphore: Any) -> Callable[[float], bool]:
        """A function that waits for a semaphore, for so many seconds or a little less."""
        return partial(_ticker.acquire, semaphore)

else:

    def acquire_within(semaphore: Any) -> Callable[[float], bool]:
        """A function that waits for a semaphore, for so many seconds or a little less."""
        return partial(semaphore.acquire, True)
