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
    thread, where Python delivers no signals, all this does nothing. A signal that this process
    ignores, as a shell's background jobs do with Ctrl-C, goes on being ignored.
    """

    def __init__(self) -> None:
        self._entered = 0
        self._deferring = 0  # how many times `deferred` was entered
        self._is_holding = False
        self._pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread() and not self._entered:
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (signal.SIG_IGN, None):  # None: not Python's, cannot be put back
                    self._before[number] = handler
                    signal.signal(number, self._on_signal)
        self._entered += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if self._entered:
            return
        with self.held():
            for number in reversed(list(self._before)):  # Ctrl-C last: from then on it raises
                # Otherwise another trainer, entered later, has it, and gives it back for both.
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, self._handler_before(number))

    def _handler_before(self, number: int) -> Any:
        """The handler to give back: not that of a trainer that has been left already."""
        handler = self._before.pop(number)
        other = getattr(handler, "__self__", None)
        if isinstance(other, Interrupts) and not other._entered:
            return other._handler_before(number)
        return handler

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let signals wait until `check` is called, in the block or after it; it may be nested."""
        with self:
            self._deferring += 1
            try:
                yield
            finally:
                self._deferring -= 1

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
        if not self._is_holding and (again or not self._deferring):
            self._raise()
