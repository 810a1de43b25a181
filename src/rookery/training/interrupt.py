"""Ctrl-C and SIGTERM at a moment that leaves weights, optimiser and envs whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(SystemExit):
    """SIGTERM ended a run, after its checkpoint was written; uncaught, the exit code is 143."""

    def __init__(self, message: str = "") -> None:
        super().__init__(128 + signal.SIGTERM)
        self.message = message

    def __str__(self) -> str:
        return self.message


class Interrupts:
    """Ctrl-C and SIGTERM as exceptions, raised where the run can go on from later.

    Entered, it takes the two signals over; entering it again within is fine. Outside `deferred` a
    signal is raised at once: `KeyboardInterrupt` or `Terminated`. Within, the first one waits for
    `check`; a second one is raised at once, except inside `held`. Outside the main
    thread, where Python delivers no signals, all this does nothing.
    """

    def __init__(self) -> None:
        self._entered = 0
        self._is_deferring = self._is_holding = False
        self._pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread() and not self._entered:
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let signals wait until `check` is called, in the block or after it."""
        with self:
            self._is_deferring = True
            try:
                yield
            finally:
                self._is_deferring = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let the block finish, whatever comes: half of an update must not be saved."""
        self._is_holding = True
        try:
            yield
        finally:
            self._is_holding = False

    def check(self) -> None:
        """Raise what came in since.

        Raises:
            KeyboardInterrupt: after Ctrl-C.
            Terminated: after SIGTERM.
        """
        if self._pending is not None:
            self._raise()

    def _raise(self) -> None:
        number, self._pending = self._pending, None
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self._pending is not None
        self._pending = number
        if not self._is_holding and (again or not self._is_deferring):
            self._raise()
