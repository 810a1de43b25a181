"""Ending a vector env: close the envs, then stop whatever ran them, whatever happens."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rookery.errors import RookeryError, WorkerDied
from rookery.vector.backend import Backend
from rookery.worker.protocol import NotFinishedError

CLOSE_GRACE_S = 5.0
_STEP_S = 0.01  # how long one backend is waited for while others may have answered


def shut_down(owner_pid: int, backends: Sequence[Backend], grace_s: float = CLOSE_GRACE_S) -> None:
    """Close the envs and stop the backends; the first error of an env is raised at the end.

    What is under way is waited for. A backend that hangs keeps no other from closing its envs.
    """
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    deadline = time.perf_counter() + grace_s
    errors: list[RookeryError] = []
    try:
        closing = _begin_all(backends, deadline)
        while closing:
            closing = [backend for backend in closing if not _has_closed(backend, errors)]
            if time.perf_counter() >= deadline:
                break
    except BaseException:  # whoever interrupts the closing does not want to wait for its rest
        deadline = 0.0
        raise
    finally:
        _stop_all(backends, deadline)
    if errors:
        raise errors[0]


def end_at_once(backends: Sequence[Backend]) -> None:
    """Stop backends of which an interruption has left some; envs are closed where that is quick."""
    for backend in backends:
        try:
            if backend.steps_in_caller and backend.begin_close(time.perf_counter()):
                backend.finish_call()
        except RookeryError:  # whoever interrupted the closing hears of no more
            continue
    _stop_all(backends, 0.0)


def _begin_all(backends: Sequence[Backend], deadline: float) -> list[Backend]:
    """Begin to close every backend, as soon as its envs have done what they were asked."""
    waiting, closing = list(backends), []
    while waiting:
        still = []
        for backend in waiting:
            try:
                backend.finish(min(time.perf_counter() + _STEP_S, deadline))
            except NotFinishedError:
                if time.perf_counter() < deadline:
                    still.append(backend)
                continue
            if backend.begin_close(deadline):
                closing.append(backend)
        waiting = still
    return closing


def _has_closed(backend: Backend, errors: list[RookeryError]) -> bool:
    """Whether a backend's envs are closed; if not, it was given a moment."""
    try:
        backend.finish_call(time.perf_counter() + _STEP_S)
    except NotFinishedError:
        return False
    except WorkerDied:  # closed enough; whoever used it was told, or did not care
        return True
    except RookeryError as error:
        errors.append(error)
    return True


def _stop_all(backends: Sequence[Backend], deadline: float) -> None:
    """Stop every backend, also when an interruption keeps one from being stopped gently."""
    left = list(backends)
    try:
        while left:
            left[0].stop(deadline)
            del left[0]
    finally:
        for backend in left:
            backend.stop(0.0)
