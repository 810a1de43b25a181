"""Answers: waiting for what envs were ordered to do, all of them or whoever is first."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from rookery.errors import RookeryError, WorkerError, WorkerTimeout
from rookery.vector.backend import Backend
from rookery.vector.crash import CrashRecorder
from rookery.vector.episodes import Episodes
from rookery.vector.pending import Ids, Pending
from rookery.vector.results import Results
from rookery.worker.orders import IN_MESSAGE, Orders
from rookery.worker.protocol import NotFinishedError, Waitable

_LOOK_S = 0.1  # how often backends are looked after while some of their envs answer
_IN_MESSAGE = bytes([IN_MESSAGE])


class Answers:
    """Waits for backends; raises what went wrong in what has come.

    Args:
        backends: of all envs.
        orders: to all envs.
        pending: what is under way.
        results: where what they have written is read.
        episodes: notes which are over; None if that keeps nobody from stepping.
        steps_together: whether there are batches of which no env can be stepped alone.
        arrivals: the event that workers set when an env that was asked singly has answered.

    Attributes:
        recorder: writes a report of each failure before it is raised; None writes none.
        finish_order: the backends, those first whose envs the calling thread steps itself.
        backend_of: int64 ``[n]``, the place of each env's backend among ``backends``.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        orders: Orders,
        pending: Pending,
        results: Results,
        episodes: Episodes | None,
        steps_together: bool,
        arrivals: Waitable | None,
    ) -> None:
        self._backends, self._orders, self._pending = backends, orders, pending
        self._results, self._episodes = results, episodes
        self._steps_together, self._arrivals = steps_together, arrivals
        self.recorder: CrashRecorder | None = None
        self._looked = 0.0
        self._in_caller = tuple(c for c in backends if c.steps_in_caller)
        self._replaceable = tuple(c for c in backends if c.is_replaceable)
        self.finish_order = tuple(sorted(backends, key=lambda c: not c.steps_in_caller))
        self.backend_of = np.repeat(np.arange(len(backends)), [len(c.env_ids) for c in backends])

    def late(self, call: str, timeout: float | None) -> WorkerTimeout:
        """The error of a wait whose time is over."""
        late = self._pending.late_ids()
        again = "recv()" if call == "recv" else f"{call}_wait()"
        return WorkerTimeout(
            f"{call}: not finished within {timeout} s by envs {late}; they go on, and {again} may "
            "be called again",
            env_ids=late,
            command=call,
        )

    def record(self, error: RookeryError) -> None:
        """Write a report of a failure, if anybody wants one."""
        if self.recorder is not None and isinstance(error, WorkerError) and error.env_ids:
            env_id = error.env_ids[0]
            backend = self._backends[self.backend_of[env_id]]
            self.recorder.write(error, backend.since_restart(env_id))

    # ---------------------------------------------------------------- of all

    def wait_for_all(self, call: str, timeout: float | None) -> bool:
        """Wait until what was begun is done; raise the first failure, in the order of the envs.

        Returns:
            Whether an env has told anything beside its columns.
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        has_failed = has_told = False
        try:
            for backend in self.finish_order:
                has_failed = backend.finish(deadline) or has_failed
                has_told = has_told or backend.has_told
        except NotFinishedError:
            raise self.late(call, timeout) from None
        if has_failed:
            raise self._first_failure()
        return has_told

    def _first_failure(self) -> RookeryError:
        """The first failure, in the order of the envs; the call is over then."""
        failures: dict[int, RookeryError] = {}
        for backend in self._backends:
            failures.update(backend.failures)
            backend.forget()
        self._results.written(self._pending.env_ids)
        if self._episodes is not None:
            self._episodes.note(self._pending.env_ids, self._results.buffer, list(failures))
        self._pending.is_over()
        error = failures[min(failures)]
        self.record(error)
        return error

    def unread(self, call: str, error: WorkerError) -> WorkerError:
        """The error of a call of all envs of which something that has come cannot be read."""
        self._results.written(self._pending.env_ids)
        if self._episodes is not None:
            self._episodes.note(self._pending.env_ids, self._results.buffer)
        self._pending.is_over()
        error.command = call
        self.record(error)
        return error

    # ---------------------------------------------------------------- of whoever is first

    def wait_for_some(self, min_envs: int, timeout: float | None) -> Ids:
        """Wait until enough envs have answered; ids of all that have, int64 ``[k]``.

        Raises:
            WorkerTimeout: when the time is over.
            RookeryError: the first failure among those that have answered; the others' answers
                can still be waited for.
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        while True:
            if self._arrivals is not None:
                self._arrivals.clear()  # the answers are about to be read
            try:
                self._poll(deadline)
                ready = self._ready_ids(deadline)
            except NotFinishedError:
                raise self.late("recv", timeout) from None
            if len(ready) >= min_envs or (len(ready) and self._has_failed(ready)):
                if self._orders.fence is not None:
                    self._orders.fence()
                self._raise_failures(ready)
                return ready
            if deadline is not None and time.perf_counter() >= deadline:
                raise self.late("recv", timeout)
            if self._arrivals is not None and not self._caller_has_work():
                self._arrivals.wait(self._wakes_up, deadline)

    def unread_of_some(self, error: WorkerError) -> WorkerError:
        """The error of an env whose answer cannot be read; the other answers stay."""
        (env_id,) = error.env_ids
        self._orders.received[env_id] = self._orders.asked[env_id]
        if self._episodes is not None:
            self._episodes.note(np.array([env_id]), self._results.buffer)
        error.command = "step" if self._pending.steps[env_id] else "reset"
        self.record(error)
        return error

    def _wakes_up(self) -> bool:
        """End a wait that has lasted a while: backends are to be looked after."""
        self._pending.begin_again()
        return False

    def _poll(self, deadline: float | None) -> None:
        """Have backends take in what has come, and step what is for this thread to step."""
        now = time.perf_counter()
        is_time = now - self._looked > _LOOK_S
        if is_time:
            self._looked = now
        if is_time or _IN_MESSAGE in self._orders.status.tobytes():
            concerned = self._backends
        else:
            concerned = (*self._in_caller, *(c for c in self._replaceable if c.needs_poll))
        for backend in concerned:
            backend.poll(deadline)

    def _ready_ids(self, deadline: float | None) -> Ids:
        """Ids of the envs whose answer has come whole and was not handed out.

        Of batches that step together, all envs or none.
        """
        orders = self._orders
        ready = orders.ready()
        is_partial = _IN_MESSAGE in orders.status[ready].tobytes()
        if is_partial or any(backend.needs_poll for backend in self._replaceable):
            for backend in self._backends:  # what has come since they were asked last
                backend.poll(deadline)
            ready = np.intersect1d(ready, orders.ready(), assume_unique=True)
        if not self._steps_together:
            return ready
        late = self.backend_of[orders.asked != orders.answered]  # words are written one by one
        return ready[~np.isin(self.backend_of[ready], late)]

    def _caller_has_work(self) -> bool:
        is_busy = self._orders.asked != self._orders.answered
        own = [backend.env_ids for backend in self._in_caller]
        return any(is_busy[ids.start : ids.stop].any() for ids in own)

    def _has_failed(self, ready: Ids) -> bool:
        return any(
            env_id in backend.failures
            for backend in self._backends
            if backend.failures
            for env_id in ready.tolist()
        )

    def _raise_failures(self, ids: Ids) -> None:
        """Raise the first failure among envs that are ready; the other answers stay."""
        for backend in self._backends:
            if not backend.failures:
                continue
            for env_id in ids.tolist():
                error = backend.failures.get(env_id)
                if error is None:
                    continue
                same = [i for i, other in backend.failures.items() if other is error]
                for i in same:
                    del backend.failures[i]
                self._orders.received[same] = self._orders.asked[same]
                self.record(error)
                raise error
