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


class InterruptShield:
    """Notes the first Ctrl-C or SIGTERM; `check` raises it where the run can go on from later.

    A second one is raised at once, wherever the run is, except inside `hold`. Outside the main
    thread, where Python delivers no signals, the shield does nothing.
    """

    def __init__(self) -> None:
        self._holding = False
        self._pending: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> InterruptShield:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise what came in since.

        Raises:
            KeyboardInterrupt: after Ctrl-C.
            Terminated: after SIGTERM.
        """
        if self._pending is not None:
            self._raise()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let the block finish, whatever comes: half of an update must not be saved."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False

    def _raise(self) -> None:
        number, self._pending = self._pending, None
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = self._pending is not None
        self._pending = number
        if again and not self._holding:
            self._raise()
