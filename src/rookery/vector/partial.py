"""Partial batches: some envs are sent actions, and whoever is ready first is received first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from rookery.env import mail
from rookery.env.arrays import BatchArrays
from rookery.env.inbox import Inbox
from rookery.env.slab import News
from rookery.errors import (
    ConfigError,
    NoPendingCallError,
    PendingCallError,
    RookeryError,
    WorkerTimeout,
)
from rookery.vector.share import Share
from rookery.worker.doorbell import Doorbell

Ids = npt.NDArray[np.int64]

_CHECK_S = 0.1  # how soon a dead worker is noticed while others answer


class PartialBatches:
    """Which envs are busy with something that they were told by themselves.

    An env that was told something can be told more only when its answer was received: nothing
    piles up, and each env's answers come in order.

    Args:
        arrays: of all envs.
        shares: who steps them.
        arrivals: the bell that workers ring for each answer; None if there are none.
        inbox: hears what answers tell beside the arrays.
    """

    def __init__(
        self,
        arrays: BatchArrays,
        shares: Sequence[Share],
        arrivals: Doorbell | None,
        inbox: Inbox,
    ) -> None:
        self._arrays = arrays
        self._mail = arrays.mail
        self._shares = shares
        self._arrivals = arrivals
        self._inbox = inbox
        num_envs = arrays.spaces.num_envs
        self._busy = np.zeros(num_envs, np.bool_)
        self._share_of = np.zeros(num_envs, np.int64)
        for i, share in enumerate(shares):
            self._share_of[share.env_ids.start : share.env_ids.stop] = i
        self._is_settled = True
        self._checked = 0.0

    @property
    def in_use(self) -> bool:
        """Whether anything was told since other calls were made."""
        return not self._is_settled

    @property
    def num_busy(self) -> int:
        """How many envs have an answer under way."""
        return int(np.count_nonzero(self._busy))

    def chosen(self, env_ids: Sequence[int] | npt.NDArray[np.integer] | None, call: str) -> Ids:
        """Check which envs are meant: int64 ``[k]``, each once, none of them busy."""
        num_envs = len(self._busy)
        ids = np.arange(num_envs) if env_ids is None else np.asarray(env_ids)
        if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
            raise ConfigError(
                f"{call}: env_ids must be a list of env indices, got {env_ids!r:.200}"
            )
        ids = ids.astype(np.int64, copy=False)
        if ids.min() < 0 or ids.max() >= num_envs:
            raise ConfigError(
                f"{call}: env_ids must lie in 0 to {num_envs - 1}, got {ids.tolist()}"
            )
        if len(ids) > 1 and np.bincount(ids).max() > 1:
            raise ConfigError(f"{call}: env_ids names an env twice: {ids.tolist()}")
        busy = ids[self._busy[ids]]
        if len(busy):
            raise PendingCallError(
                f"{call}: envs {busy.tolist()} still have an answer under way; recv() returns it",
                "recv",
            )
        return ids

    def tell(self, ids: Ids, kind: int, seeds: Sequence[int | None] = ()) -> None:
        """Tell some envs what to do. Actions are noted already."""
        self._is_settled = False
        self._busy[ids] = True
        self._mail.send(ids, kind, seeds)
        for i in dict.fromkeys(self._share_of[ids].tolist()):
            self._shares[i].notify()

    def receive(self, min_envs: int, timeout: float | None) -> Ids:
        """Wait until enough envs have answered; all that have, int64 ``[k]``, the first first.

        Raises:
            ConfigError: when not so many envs are busy.
            WorkerTimeout: when ``timeout`` seconds pass; the envs go on.
            WorkerError: when an env or a worker fails.
        """
        if not 1 <= min_envs <= self.num_busy:
            if not self.num_busy:
                raise NoPendingCallError("recv: no env was sent anything", "recv")
            raise ConfigError(
                f"recv: min_envs is {min_envs}, but {self.num_busy} envs have an answer under way"
            )
        now = time.perf_counter()
        if now - self._checked > _CHECK_S:
            self._checked = now
            self._check()
        self._wait(min_envs, timeout)
        ids = self._ready()
        ids = ids[np.argsort(self._mail.answered_at[ids], kind="stable")]
        self._hear(ids)
        self._busy[ids] = False
        return ids

    def quiesce(self) -> None:
        """Wait until every busy env has answered; what they answered can still be received."""
        if self.num_busy:
            self._wait(self.num_busy, None)

    def settle(self) -> None:
        """Be ready for other calls; no env is busy."""
        if not self._is_settled:
            self._is_settled = True
            for share in self._shares:
                share.settle()

    def _ready(self) -> Ids:
        return np.flatnonzero(self._busy & (self._mail.answered == self._mail.sent))

    def _wait(self, min_envs: int, timeout: float | None) -> None:
        deadline = None if timeout is None else time.perf_counter() + timeout
        while len(self._ready()) < min_envs:
            if any(share.obey_next() for share in self._shares):
                continue
            assert self._arrivals is not None
            if not self._arrivals.wait(partial(self._is_short, min_envs), deadline):
                self._check()
                if len(self._ready()) >= min_envs:
                    return
                if deadline is not None and time.perf_counter() >= deadline:
                    raise self._late(timeout)

    def _is_short(self, min_envs: int) -> bool:
        """Whether to go on waiting; a fault that was survived is an answer that nobody rings."""
        self._check()
        return len(self._ready()) < min_envs

    def _check(self) -> None:
        """Raise what keeps busy envs from answering."""
        unanswered = np.flatnonzero(self._mail.answered != self._mail.sent)
        for i in dict.fromkeys(self._share_of[unanswered].tolist()):
            try:
                self._shares[i].check()
            except RookeryError:
                ids = self._shares[i].env_ids
                self._busy[ids.start : ids.stop] = False
                raise

    def _hear(self, ids: Ids) -> None:
        """Take in what the answers tell; the first failure is raised, the other answers stay."""
        for env_id in ids[self._mail.status[ids] != mail.PLAIN].tolist():
            try:
                news = self._shares[self._share_of[env_id]].fetch(env_id)
            except RookeryError:
                self._busy[env_id] = False
                raise
            finally:
                self._mail.status[env_id] = mail.PLAIN
            if isinstance(news, News):
                self._inbox.hear(news)

    def _late(self, timeout: float | None) -> WorkerTimeout:
        late = np.flatnonzero(self._mail.answered != self._mail.sent).tolist()
        return WorkerTimeout(
            f"recv: too few envs have answered within {timeout} s, envs {late} are still busy; "
            "they go on, and recv() may be called again",
            env_ids=late,
            command="recv",
        )
