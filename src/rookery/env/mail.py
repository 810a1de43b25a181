"""Mail: which envs were told something by themselves, and which have answered.

One row for each env. The caller writes what an env is to do and numbers it; whoever steps the env
does it and writes the number back. Every column has one writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

STEP, RESET, SEEDED_RESET = 0, 1, 2  # kinds
PLAIN = 0  # the status of an answer to which nothing belongs but arrays

_COLUMNS = {
    "kind": np.dtype(np.int64),
    "seed": np.dtype(np.int64),
    "sent": np.dtype(np.int64),
    "answered": np.dtype(np.int64),
    "status": np.dtype(np.int64),
    "answered_at": np.dtype(np.float64),
}


def columns(num_envs: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Name -> (shape, dtype) of the arrays of a mailbox."""
    return {f"mail.{name}": ((num_envs,), dtype) for name, dtype in _COLUMNS.items()}


class Mailbox:
    """The rows of all envs.

    Args:
        views: an array for each of :func:`columns`.

    Attributes:
        kind: int64 ``[n]``, what the env is to do.
        seed: int64 ``[n]``, for a seeded reset.
        sent: int64 ``[n]``, number of the last letter to the env.
        answered: int64 ``[n]``, number of the last letter that the env has answered.
        status: int64 ``[n]``, whether more than arrays belongs to the answer; see
            :mod:`rookery.worker.protocol`.
        answered_at: float64 ``[n]``, ``time.perf_counter()`` of the answer, for the order.
    """

    def __init__(self, views: Mapping[str, Any]) -> None:
        self.kind, self.seed, self.sent = (views[f"mail.{n}"] for n in ("kind", "seed", "sent"))
        self.answered = views["mail.answered"]
        self.status = views["mail.status"]
        self.answered_at = views["mail.answered_at"]
        self._number = 0

    def send(self, env_ids: Ids, kind: int, seeds: Sequence[int | None] = ()) -> None:
        """Tell some envs, int64 ``[k]``, to do something; their numbers are written last."""
        self.kind[env_ids] = kind
        for env_id, seed in zip(env_ids.tolist(), seeds, strict=False):
            if seed is not None:
                self.kind[env_id], self.seed[env_id] = SEEDED_RESET, seed
        first = self._number + 1
        self._number += len(env_ids)
        self.sent[env_ids] = np.arange(first, self._number + 1)

    def unanswered(self, env_ids: range) -> list[int]:
        """Those of some envs that were told something, the first told first."""
        part = slice(env_ids.start, env_ids.stop)
        sent = self.sent[part]
        waiting = np.flatnonzero(sent != self.answered[part])
        if len(waiting) > 1:
            waiting = waiting[np.argsort(sent[waiting])]
        return [env_ids.start + i for i in waiting.tolist()]

    def answer(self, env_id: int, status: int, now: float) -> None:
        """Note that an env has done as it was told."""
        self.status[env_id] = status
        self.answered_at[env_id] = now
        self.answered[env_id] = self.sent[env_id]
