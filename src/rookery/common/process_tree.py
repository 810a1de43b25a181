"""A process and all its descendants."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from typing import Any

import psutil

_END_S = 10.0  # for processes that were killed or are about to exit
_POLL_S = 0.01
_TRACKER = "multiprocessing.resource_tracker"


def with_children(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; empty if it has exited."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end_with_children(process: subprocess.Popen[Any]) -> None:
    """Kill a child process and all its descendants, and wait until they have exited.

    Their resource trackers exit last, by themselves, because they remove the names of semaphores
    that the killed processes leave.
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
    except psutil.Error:  # it has exited, or belongs to another user
        return False


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):  # it has exited, or belongs to another user
            process.kill()


def _wait(processes: list[psutil.Process]) -> None:
    """Wait until all have exited, whether or not their parents have reaped them."""
    deadline = time.monotonic() + _END_S
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
