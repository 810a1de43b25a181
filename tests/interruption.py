"""A Ctrl-C at a chosen line, and an alarm for calls that never end."""

from __future__ import annotations

import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import rookery

_SOURCES = str(Path(rookery.__file__).parent)
_ENVS = str(Path(_SOURCES) / "testing")
_FENCE = str(Path(_SOURCES) / "shared" / "fence.py")

_LONG_S = 120  # no call of these tests takes a hundredth of it on a machine that is free


class NeverEnds(BaseException):
    """A call took too long; no handler for errors must catch this."""


@contextmanager
def alarm() -> Iterator[None]:
    """Raise :class:`NeverEnds` in a call that does not end."""

    def ring(signum: int, frame: Any) -> None:
        raise NeverEnds(f"the call did not end within {_LONG_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_LONG_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def interrupted(call: Callable[[], Any], line: int) -> Any:
    """Call, and raise KeyboardInterrupt before the n-th line of the library that it executes.

    Lines of the envs do not count, and in what the interpreter calls when it collects garbage it
    would swallow the exception: there the next line outside is meant.

    Raises:
        KeyboardInterrupt: unless the call was over by then.
    """
    left = line

    def in_function(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left <= 0 and not _is_of_garbage(frame):
                sys.settrace(before)
                raise KeyboardInterrupt
        return in_function

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        return in_function if _is_ours(frame.f_code.co_filename) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        return call()
    finally:
        sys.settrace(before)


def is_interrupted(call: Callable[[], Any], line: int) -> bool:
    """Interrupt the call as :func:`interrupted` does; return False if it was over before the line.

    Args:
        call: the call to interrupt.
        line: the number of the line, counted from 0.
    """
    try:
        interrupted(call, line + 1)
    except KeyboardInterrupt:
        return True
    return False


def _is_ours(path: str) -> bool:
    """Return whether lines of this file can be interrupted.

    Site-packages of a virtual environment can lie in a folder that is named `rookery`, too. Signal
    handlers do not run between the lines of a `with` that only takes a lock, as in the fence.
    """
    return path.startswith(_SOURCES + os.sep) and not path.startswith((_ENVS + os.sep, _FENCE))


def _is_of_garbage(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name == "__del__" or code.co_filename == weakref.__file__:
            return True
        frame = frame.f_back
    return False
