"""Deferral of Ctrl-C, SIGTERM and (on Windows) Ctrl-Break until an update is complete."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
if sys.platform == "win32":  # besides Ctrl-C the only signal that asks a program to exit
    SIGNALS[signal.SIGBREAK] = "Ctrl-Break"


class Terminated(SystemExit):
    """Raised on SIGTERM, after the checkpoint was written; uncaught, the exit code is 143."""

    def __init__(self, message: str = "") -> None:
        super().__init__(128 + signal.SIGTERM)
        self.message = message

    def __str__(self) -> str:
        return self.message


class Interrupts:
    """Raises Ctrl-C and SIGTERM as exceptions at points from which the run can be resumed.

    Entering it installs handlers for the signals; it may be nested. Outside `deferred`, a signal
    raises `KeyboardInterrupt` or `Terminated` at once. Inside `deferred`, the first signal prints a
    message to standard error and is raised by `check`; a second signal is raised at once. Outside
    the main thread, where Python delivers no signals, this does nothing. A signal that this process
    ignores, such as Ctrl-C in background jobs of a shell, stays ignored.

    Attributes:
        cut_short: True if a signal was raised inside `deferred` since the last `begin`.
    """

    def __init__(self) -> None:
        self._entered = 0
        self.cut_short = False
        self._deferring = 0  # how many times `deferred` was entered
        self._is_restoring = False
        self._is_ending = False  # True if a signal was raised since `begin`
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
        self._is_restoring = True
        try:
            for number in reversed(list(self._before)):  # Ctrl-C last: it raises afterwards
                # If another trainer was entered later, that one restores the handler for both.
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, self._handler_before(number))
        finally:
            self._is_restoring = False

    def _handler_before(self, number: int) -> Any:
        """Return the handler to restore, skipping trainers that were already left."""
        handler = self._before.pop(number)
        other = getattr(handler, "__self__", None)
        if isinstance(other, Interrupts) and not other._entered:
            return other._handler_before(number)
        return handler

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals until `check` is called; may be nested.

        After a signal was raised, the next signal counts as the second until `begin` is called.
        """
        with self:
            self._deferring += 1
            try:
                yield
            finally:
                self._deferring -= 1

    def begin(self) -> None:
        """Start a new unit of work; the next signal counts as the first."""
        self._is_ending = self.cut_short = False

    def check(self) -> None:
        """Raise the pending signal, if any.

        Raises:
            KeyboardInterrupt: after Ctrl-C.
            Terminated: after SIGTERM.
        """
        if self._pending is not None:
            self._raise()

    def _raise(self) -> None:
        number, self._pending, self._is_ending = self._pending, None, True
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_second = self._pending is not None or (self._is_ending and self._deferring > 0)
        self._pending = number
        if self._is_restoring:
            return
        if self._deferring and not is_second:
            _announce(number)
            return
        self.cut_short = self.cut_short or self._deferring > 0
        self._raise()


def _announce(number: int) -> None:
    """Print that a signal was received and is deferred."""
    text = (
        f"rookery: {SIGNALS[signal.Signals(number)]}: ending after the current update is saved; "
        "a second signal ends at once, without saving it\n"
    )
    try:
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)
    except RuntimeError:  # the signal interrupted another write, and buffered writes do not nest
        os.write(2, text.encode())
    except (OSError, ValueError):  # standard error is closed; an error would end the update
        return
