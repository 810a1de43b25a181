"""Ending a vector env: close the envs, then stop whatever ran them, whatever happens."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from rookery.errors import RookeryError, WorkerDied
from rookery.vector.share import Share
from rookery.worker.protocol import NotFinishedError

CLOSE_GRACE_S = 5.0


def shut_down(
    owner_pid: int,
    shares: Sequence[Share],
    unfinished: Sequence[Share] = (),
    grace_s: float = CLOSE_GRACE_S,
) -> None:
    """Close the envs and stop the shares; the first error of an env is raised at the end."""
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    deadline = time.perf_counter() + grace_s
    errors: list[RookeryError] = []
    closing = []
    try:
        for share in shares:
            busy = share in unfinished and _is_late(_outcome(share, deadline))
            if not busy and _begun_closing(share):
                closing.append(share)
        for share in closing:
            error = _outcome(share, deadline)
            # A worker that has died is closed enough; whoever used it was told, or did not care.
            if isinstance(error, RookeryError) and not isinstance(error, WorkerDied):
                errors.append(error)
    finally:
        for share in shares:
            share.stop(deadline)
    if errors:
        raise errors[0]


def _outcome(share: Share, deadline: float) -> Exception | None:
    """What went wrong in what the share was doing; a NotFinishedError if it goes on."""
    try:
        share.finish(deadline)
    except (NotFinishedError, RookeryError) as error:
        return error
    return None


def _is_late(outcome: Exception | None) -> bool:
    return isinstance(outcome, NotFinishedError)


def _begun_closing(share: Share) -> bool:
    try:
        share.begin(share.request("close"))
    except RookeryError:  # it has died already
        return False
    return True
