"""A process and all that came of it, whatever each of them runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from typing import Any

import psutil

_END_S = 10.0  # for processes that were killed, or are about to end by themselves
_POLL_S = 0.01
_TRACKER = "multiprocessing.resource_tracker"


def with_children(pid: int) -> list[psutil.Process]:
    """A process and all that came of it; empty if it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_with_children(process: subprocess.Popen[Any]) -> None:
    """End a process that was started here, and all that came of it; none of them is left.

    Their resource trackers end last, and by themselves: they remove the names of semaphores that
    the others, who were killed, cannot remove any more.
    """
    family = with_children(process.pid)
    trackers = [each for each in family if _is_tracker(each)]
    others = [each for each in family if each not in trackers]
    process.kill()
    process.wait()
    _kill(others)
    _wait(others)
    _wait(trackers)
    _kill(trackers)


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return _TRACKER in " ".join(process.cmdline())
    except psutil.Error:  # it has ended, or is another user's
        return False


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):  # it has ended, or is another user's
            process.kill()


def _wait(processes: list[psutil.Process]) -> None:
    """Wait until all have ended, but not for whoever ought to take in that they have."""
    deadline = time.monotonic() + _END_S
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
