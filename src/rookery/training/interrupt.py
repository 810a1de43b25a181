"""Ctrl-C at a moment that leaves weights and optimiser whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class InterruptShield:
    """Raises KeyboardInterrupt at once, except inside `hold`, where it waits for the end.

    Outside the main thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self._holding = False
        self._pending = False
        self._before: Any = None

    def __enter__(self) -> InterruptShield:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let the block finish before an interrupt is raised."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._holding and not self._pending:
            self._pending = True
        else:
            raise KeyboardInterrupt
