"""Ctrl-C and SIGTERM, on Windows Ctrl-Break, when weights, optimiser and envs are whole."""

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
if sys.platform == "win32":  # the one way to ask a program there to end, other than Ctrl-C
    SIGNALS[signal.SIGBREAK] = "Ctrl-Break"


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
    `check`, which standard error says at once; a second one is raised at once. Outside the main
    thread, where Python delivers no signals, all this does nothing. A signal that this process
    ignores, as a shell's background jobs do with Ctrl-C, goes on being ignored.

    Attributes:
        cut_short: whether one was raised, since `begin`, amid what should have been finished.
    """

    def __init__(self) -> None:
        self._entered = 0
        self.cut_short = False
        self._deferring = 0  # how many times `deferred` was entered
        self._is_restoring = False
        self._is_ending = False  # whether one was raised since `begin`
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
            for number in reversed(list(self._before)):  # Ctrl-C last: from then on it raises
                # Otherwise another trainer, entered later, has it, and gives it back for both.
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, self._handler_before(number))
        finally:
            self._is_restoring = False

    def _handler_before(self, number: int) -> Any:
        """The handler to give back: not that of a trainer that has been left already."""
        handler = self._before.pop(number)
        other = getattr(handler, "__self__", None)
        if isinstance(other, Interrupts) and not other._entered:
            return other._handler_before(number)
        return handler

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let signals wait until `check` is called, in the block or after it; it may be nested.

        After a signal was raised, the next one is the second, until `begin` is called.
        """
        with self:
            self._deferring += 1
            try:
                yield
            finally:
                self._deferring -= 1

    def begin(self) -> None:
        """Note that something new begins, which signals before did not mean."""
        self._is_ending = self.cut_short = False

    def check(self) -> None:
        """Raise what came in since.

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
            _tell(number)
            return
        self.cut_short = self.cut_short or self._deferring > 0
        self._raise()


def _tell(number: int) -> None:
    """Answer a signal that is waited with."""
    text = (
        f"rookery: {SIGNALS[signal.Signals(number)]}: ending once the present update is made and "
        "saved; a second one ends at once, without it\n"
    )
    try:
        if sys.stderr is not None:
            print(text, end="", file=sys.stderr, flush=True)
    except RuntimeError:  # the signal came amid another line, and such writes cannot be nested
        os.write(2, text.encode())
    except (OSError, ValueError):  # nobody reads any more; an error would end the update
        return
