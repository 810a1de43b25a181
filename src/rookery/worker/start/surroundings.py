"""Temporary changes of this process while it starts a child."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import process
from typing import Any

_replacements: list[tuple[Any, str, Any]] = []  # module, name, original function


@contextmanager
def interrupts_postponed() -> Iterator[None]:
    """Postpone a Ctrl-C until the end of the block, here and in a child that is started there.

    Otherwise it could come between a fork and the line that stores the child, or stop a child
    during its imports, with a long traceback.
    """
    if sys.platform == "win32":
        with _interrupt_noted():
            yield
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _interrupt_noted() -> Iterator[None]:
    """Raise a Ctrl-C only after the block, on a system that cannot block signals.

    A child that is started in the block does not postpone it.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return
    noted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def permission_to_start() -> Iterator[None]:
    """Allow a daemonic process to start children within the block. They are daemons, too."""
    config = process.current_process()._config  # type: ignore[attr-defined]
    daemon = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemon is not None:
            config["daemon"] = daemon


@contextmanager
def replaced(module: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of a module, but only for calls from this thread of this process."""
    original = getattr(module, name)
    thread = threading.get_ident()

    def function(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            return replacement(original, *args, **kwargs)
        return original(*args, **kwargs)

    _replacements.append((module, name, original))
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, original)
        _replacements.pop()


def restore() -> None:
    """Undo all replacements, in a process that was forked within such a block."""
    while _replacements:
        setattr(*_replacements.pop())
