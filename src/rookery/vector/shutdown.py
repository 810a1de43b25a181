"""The end of a vector env: close the envs, then stop the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from rookery.errors import RookeryError, WorkerDied
from rookery.vector.backend import Backend
from rookery.worker.protocol import NotFinishedError

CLOSE_GRACE_S = 5.0
_STEP_S = 0.01  # wait for one backend, before the others are checked again


def shut_down(owner_pid: int, backends: Sequence[Backend], grace_s: float = CLOSE_GRACE_S) -> None:
    """Close the envs and stop the backends; at the end, raise the first error of an env.

    Pending calls are completed first. A backend that hangs does not delay the others.
    """
    if os.getpid() != owner_pid:  # a forked copy does not own the workers
        return
    deadline = time.perf_counter() + grace_s
    errors: list[RookeryError] = []
    try:
        closing = _begin_all(backends, deadline)
        while closing:
            closing = [backend for backend in closing if not _has_closed(backend, errors)]
            if time.perf_counter() >= deadline:
                break
    except BaseException:  # an interruption ends the waiting
        deadline = 0.0
        raise
    finally:
        _stop_all(backends, deadline)
    if errors:
        raise errors[0]


def end_at_once(backends: Sequence[Backend]) -> None:
    """Stop the backends that an interrupted close left; close envs only where that is quick."""
    for backend in backends:
        with suppress(RookeryError):  # the interruption is reported instead
            if backend.steps_in_caller and backend.begin_close(time.perf_counter()):
                backend.finish_call()
    _stop_all(backends, 0.0)


def _begin_all(backends: Sequence[Backend], deadline: float) -> list[Backend]:
    """Begin to close every backend as soon as its envs have answered."""
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
    """Return True if the envs of a backend are closed; wait a moment for it."""
    try:
        backend.finish_call(time.perf_counter() + _STEP_S)
    except NotFinishedError:
        return False
    except WorkerDied:  # there is nothing left to close
        return True
    except RookeryError as error:
        errors.append(error)
    return True


def _stop_all(backends: Sequence[Backend], deadline: float) -> None:
    """Stop every backend, also if an exception interrupts this."""
    left = list(backends)
    try:
        while left:
            left[0].stop(deadline)
            del left[0]
    finally:
        for backend in left:
            backend.stop(0.0)
