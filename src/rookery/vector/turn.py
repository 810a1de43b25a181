"""Turn: a call that all shares are making together, from its beginning to its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from rookery.env.slab import News
from rookery.errors import NoPendingCallError, PendingCallError, RookeryError, WorkerTimeout
from rookery.vector.share import Share
from rookery.worker.protocol import NotFinishedError


class Turn:
    """At most one call is under way; it ends when every share has finished its part.

    Args:
        shares: who makes the calls.
        hear: takes in what shares tell beside their arrays.

    Attributes:
        pending: the name of the call that is under way, None if there is none.
        unfinished: the shares that have not finished their part of it.
    """

    def __init__(self, shares: Sequence[Share], hear: Callable[[News], None]) -> None:
        self._shares = tuple(shares)
        # The calling process does its own part first, while the workers do theirs.
        self._finish_order = tuple(sorted(shares, key=lambda share: share.pid != os.getpid()))
        self._begin_steps = tuple(share.begin_step for share in shares)
        self._hear = hear
        self._results: dict[int, Any] = {}
        self.pending: str | None = None
        self.unfinished: list[Share] = []

    def require_none(self, call: str) -> None:
        """Complain if a call is under way.

        Raises:
            PendingCallError: then.
        """
        if self.pending is not None:
            raise PendingCallError(
                f"{call}: a {self.pending} is still under way; {self.pending}_wait() ends it",
                self.pending,
            )

    def begin_step(self, buffer: int) -> None:
        """Begin a step of all envs into a buffer."""
        self.pending = "step"
        self.unfinished = list(self._finish_order)
        for begin_step in self._begin_steps:
            begin_step(buffer)

    def begin(self, method: str, args: Sequence[tuple[Any, ...]]) -> None:
        """Begin a call of a method of every EnvBatch, with arguments for each share."""
        requests = [share.request(method, *a) for share, a in zip(self._shares, args, strict=True)]
        self.pending = method
        self.unfinished = list(self._finish_order)
        for share, request in zip(self._shares, requests, strict=True):
            share.begin(request)

    def finish(self, call: str, timeout: float | None) -> dict[int, Any]:
        """Wait until all shares have finished.

        Args:
            call: which was begun.
            timeout: seconds; when they pass, the call goes on.

        Returns:
            Results that are not empty, by the first env id of their share.

        Raises:
            NoPendingCallError: when this call was not begun.
            WorkerTimeout: when the time has passed.
            RookeryError: the first failure, in the order of the envs.
        """
        if self.pending != call:
            raise NoPendingCallError(f"{call}_wait: no {call} was begun", call)
        deadline = None if timeout is None else time.perf_counter() + timeout
        unfinished, results = self.unfinished, self._results
        while unfinished:
            share = unfinished[0]
            try:
                result = self._outcome(share, deadline)
            except NotFinishedError:
                raise self._late(call, timeout) from None
            del unfinished[0]
            if result is not None and (not isinstance(result, tuple) or result):
                results[share.env_ids.start] = result
        self.pending = None
        if results:
            self._results = {}
            for first_id in sorted(results):
                if isinstance(results[first_id], RookeryError):
                    raise results[first_id]
        return results

    def _outcome(self, share: Share, deadline: float | None) -> Any:
        """What a share returns, or the error that it raises."""
        try:
            result = share.finish(deadline)
        except RookeryError as error:
            return error
        if isinstance(result, News):
            self._hear(result)
        return result

    def _late(self, call: str, timeout: float | None) -> WorkerTimeout:
        late = [i for share in self.unfinished for i in share.env_ids]
        return WorkerTimeout(
            f"{call}: not finished within {timeout} s by the workers of envs {late}; the call goes "
            f"on, and {call}_wait() may be called again",
            env_ids=late,
            command=call,
        )
