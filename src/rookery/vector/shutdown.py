"""Ending a vector env: close the envs, then stop whatever ran them, whatever happens."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rookery.errors import RookeryError, WorkerDied
from rookery.vector.carrier import Carrier
from rookery.worker.protocol import NotFinishedError

CLOSE_GRACE_S = 5.0
_STEP_S = 0.01  # how long one carrier is waited for while others may have answered


def shut_down(owner_pid: int, carriers: Sequence[Carrier], grace_s: float = CLOSE_GRACE_S) -> None:
    """Close the envs and stop the carriers; the first error of an env is raised at the end.

    What is under way is waited for. A carrier that hangs keeps no other from closing its envs.
    """
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    deadline = time.perf_counter() + grace_s
    errors: list[RookeryError] = []
    try:
        closing = _begin_all(carriers, deadline)
        while closing:
            closing = [carrier for carrier in closing if not _has_closed(carrier, errors)]
            if time.perf_counter() >= deadline:
                break
    except BaseException:  # whoever interrupts the closing does not want to wait for its rest
        deadline = 0.0
        raise
    finally:
        _stop_all(carriers, deadline)
    if errors:
        raise errors[0]


def end_at_once(carriers: Sequence[Carrier]) -> None:
    """Stop carriers of which an interruption has left some; envs are closed where that is quick."""
    for carrier in carriers:
        try:
            if carrier.steps_in_caller and carrier.begin_close(time.perf_counter()):
                carrier.finish_call()
        except RookeryError:  # whoever interrupted the closing hears of no more
            continue
    _stop_all(carriers, 0.0)


def _begin_all(carriers: Sequence[Carrier], deadline: float) -> list[Carrier]:
    """Begin to close every carrier, as soon as its envs have done what they were asked."""
    waiting, closing = list(carriers), []
    while waiting:
        still = []
        for carrier in waiting:
            try:
                carrier.finish(min(time.perf_counter() + _STEP_S, deadline))
            except NotFinishedError:
                if time.perf_counter() < deadline:
                    still.append(carrier)
                continue
            if carrier.begin_close(deadline):
                closing.append(carrier)
        waiting = still
    return closing


def _has_closed(carrier: Carrier, errors: list[RookeryError]) -> bool:
    """Whether a carrier's envs are closed; if not, it was given a moment."""
    try:
        carrier.finish_call(time.perf_counter() + _STEP_S)
    except NotFinishedError:
        return False
    except WorkerDied:  # closed enough; whoever used it was told, or did not care
        return True
    except RookeryError as error:
        errors.append(error)
    return True


def _stop_all(carriers: Sequence[Carrier], deadline: float) -> None:
    """Stop every carrier, also when an interruption keeps one from being stopped gently."""
    left = list(carriers)
    try:
        while left:
            left[0].stop(deadline)
            del left[0]
    finally:
        for carrier in left:
            carrier.stop(0.0)
