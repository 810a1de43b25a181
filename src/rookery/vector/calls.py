"""The calls of a vector env: which are allowed now, their beginning, and the wait for answers."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.errors import (
    ClosedError,
    ConfigError,
    NoPendingCallError,
    PendingCallError,
    RookeryError,
    UsageError,
    WorkerError,
    WorkerTimeout,
)
from rookery.vector.backend import Backend
from rookery.vector.crash import CrashRecorder
from rookery.vector.results import EndedEpisodes, Results
from rookery.worker.orders import IN_MESSAGE, RESET, Order, Orders
from rookery.worker.protocol import NotFinishedError, Waitable

_LOOK_S = 0.1  # interval between checks of all backends while some of their envs answer
_IN_MESSAGE = bytes([IN_MESSAGE])

Ids = npt.NDArray[np.int64]

_all: weakref.WeakSet[Pending] = weakref.WeakSet()


class Pending:
    """The pending call of a vector env, and the checks whether another call is allowed.

    Either one call of all envs is pending, or any number of orders to single envs. If an exception
    interrupts the beginning of a call (Ctrl-C, or a signal handler that raises), the wait for its
    result completes the beginning first.

    Args:
        orders: shared rows with the orders to all envs.
        backends: the backends of all envs.

    Attributes:
        name: name of the pending call of all envs; None without one.
        was_cut_short: True if a foreign exception, such as Ctrl-C, left a call pending.
        env_ids: envs of the pending call; an index.
        is_begun: False until all backends have received their orders.
        steps: bool ``[n]``, True if the last single order to an env was a step.
        is_clear: True if no call is pending and nothing forbids calls.
        guard: context manager that passes exceptions to `note`.
    """

    def __init__(self, orders: Orders, backends: Sequence[Backend]) -> None:
        self.name: str | None = None
        self.was_cut_short = False
        self.env_ids: Any = ...
        self.steps = np.zeros(len(orders.asked), np.bool_)
        self._orders = orders
        self._begin_steps = tuple(backend.begin_step for backend in backends)
        self._step: tuple[int, int] | None = None  # buffer and number of a step of all envs, or
        self._begins: Sequence[tuple[Backend, Order]] = ()  # orders to some backends
        self.is_begun = True
        self._has_single = False  # orders to single envs may be pending
        self._called: tuple[Backend, ...] = ()  # receivers of the last request
        self._begun_calls: set[int] = set()
        self._answers: dict[int, Any] = {}
        self.guard = _Guard(self)
        self.is_clear = True
        self._barred: RookeryError | None = None  # the error that every call raises
        _all.add(self)

    # ---------------------------------------------------------------- which calls are allowed

    def beginning(self, call: str) -> _Guard:
        """Return a context for beginning a call of all envs.

        A reset is also allowed after an interrupted call.
        """
        if (
            self.name is not None
            or self._has_single
            or self._barred is not None
            or self.was_cut_short
        ) and not (call == "reset" and self.was_cut_short and self._barred is None):
            self.require_idle(call)
        return self.guard

    def finishing(self, call: str) -> _Guard:
        """Return a context for waiting for the pending call of all envs."""
        self.require_call(call)
        self.begin_again()
        return self.guard

    def require_idle(self, call: str) -> None:
        """Raise if anything is pending.

        Raises:
            ClosedError: the vector env is closed.
            PendingCallError: a call or an order to a single env is pending.
        """
        self.require_no_call(call)
        if self._has_single:
            num_busy = self.num_busy()
            if num_busy:
                raise PendingCallError(
                    f"{call}: answers of {num_busy} envs are pending; recv() returns them",
                    "recv",
                )
            self._has_single = False
        self.was_cut_short = False
        self.is_clear = True

    def require_no_call(self, call: str) -> None:
        """Raise if a call of all envs is pending."""
        self.require_open(call)
        if self.name is None:
            return
        if self.name in ("apply", "set_attr"):
            ends = "it was interrupted; reset() drops it"
        else:
            ends = f"{self.name}_wait() ends it"
            ends += ", reset() drops it" if self.was_cut_short else ""
        raise PendingCallError(f"{call}: a {self.name} is still pending; {ends}", self.name)

    def require_call(self, call: str) -> None:
        """Raise if this call is not pending."""
        self.require_open(call)
        if self.name != call:
            raise NoPendingCallError(f"{call}_wait: no {call} was begun", call)

    def require_open(self, call: str) -> None:
        """Raise if no call is possible any more."""
        if self._barred is not None:
            raise type(self._barred)(f"{call}: {self._barred}")

    def close(self) -> str | None:
        """Forbid all calls; return the name of the pending call, if any."""
        self._barred, self.is_clear = ClosedError("this vector env is closed"), False
        left, self.name = None if self.was_cut_short else self.name, None
        return left

    def let_go(self) -> None:
        """Drop references to shared memory, so that it is released."""
        self._begin_steps, self._begins, self._called, self._has_single = (), (), (), False
        self.__dict__.pop("_orders", None)

    def forbid_in_child(self) -> None:
        """Forbid all calls in this forked copy of the process."""
        self.is_clear = False
        self._barred = UsageError(
            f"this vector env belongs to process {os.getppid()}, and this process is a forked "
            "copy; its workers serve one caller only. Create another vector env here"
        )

    # ---------------------------------------------------------------- orders

    def begin(self, name: str, env_ids: Any, begins: Sequence[tuple[Backend, Order]]) -> None:
        """Send orders to some backends; ``name`` is ``"recv"`` for orders to single envs."""
        self.is_begun, self._step, self._begins, self.is_clear = False, None, begins, False
        if name == "recv":
            self._has_single = True
            self.steps[env_ids] = not begins[0][1].kind & RESET
        else:
            self.name, self.env_ids = name, ... if env_ids is None else env_ids
        self.begin_again()

    def begin_step(self, buffer: int, number: int) -> None:
        """Begin a step of all envs."""
        self.is_begun, self.is_clear, self._step = False, False, (buffer, number)
        self.name, self.env_ids = "step", ...
        for begin_step in self._begin_steps:
            begin_step(buffer, number)
        self.is_begun = True

    def note(self, error: BaseException) -> None:
        """Handle an exception that leaves a call, and store whether it interrupted the call.

        Raises:
            ClosedError: the vector env was closed during the call, by another thread or by a
                signal handler. It replaces the exception.
        """
        is_closed = isinstance(self._barred, ClosedError)
        if is_closed and isinstance(error, Exception) and not isinstance(error, ClosedError):
            raise ClosedError("this vector env was closed during a call") from error
        # A wait that reached its deadline is not an interruption: it can be repeated.
        if not isinstance(error, (RookeryError, NotFinishedError)):
            self.was_cut_short = self.name is not None or self.num_busy() > 0
            self.is_clear = self.is_clear and not self.was_cut_short

    def begin_again(self) -> None:
        """Send the orders again if an exception interrupted this."""
        if self.is_begun:
            return
        if self._step is not None:
            self.begin_step(*self._step)
            return
        for backend, order in self._begins:
            backend.begin(order)
        self.is_begun = True

    def is_over(self) -> None:
        """Mark the pending call of all envs as complete."""
        self.name, self.was_cut_short, self._has_single = None, False, False
        self.is_clear = self._barred is None

    def dropped(self) -> Any:
        """Return the envs with pending results, which are then dropped; an index."""
        if self.name in ("step", "reset"):
            return self.env_ids
        return np.flatnonzero((self._orders.asked != self._orders.received) & self._has_single)

    def num_busy(self) -> int:
        """Return the number of envs for which ``recv`` has not returned an answer yet."""
        if not self._has_single:
            return 0
        return int(np.count_nonzero(self._orders.asked != self._orders.received))

    def choose(self, env_ids: Sequence[int] | npt.NDArray[np.integer] | None, call: str) -> Ids:
        """Return checked env indices, int64 ``[k]``, without duplicates; None means all envs.

        Raises:
            ConfigError: the indices are invalid.
            PendingCallError: the answer of one of these envs is pending.
        """
        self.require_no_call(call)
        orders = self._orders
        if not self._has_single:  # results of calls of all envs are complete
            orders.received[:] = orders.asked
        ids = indices(env_ids, len(orders.asked), call)
        if len(ids) > 1 and np.bincount(ids).max() > 1:
            raise ConfigError(f"{call}: env_ids contains an env twice: {ids.tolist()}")
        busy = ids[orders.asked[ids] != orders.received[ids]]
        if len(busy):
            raise PendingCallError(
                f"{call}: answers of envs {busy.tolist()} are pending; recv() returns them",
                "recv",
            )
        return ids

    # ---------------------------------------------------------------- requests

    def begin_call(self, name: str, requests: Sequence[tuple[Backend, Any]]) -> None:
        """Send a request to every backend, and keep the errors of those that fail at once."""
        with self.guard:
            self._begun_calls.clear()
            self._answers = {}
            self.is_clear = False
            self.name, self.env_ids = name, ...
            self._called = tuple(backend for backend, _ in requests)
            for backend, request in requests:
                first_id = backend.env_ids.start
                try:
                    backend.begin_call(request)
                except RookeryError as error:
                    self._answers[first_id] = error
                self._begun_calls.add(first_id)

    def finish_call(self, backends: Sequence[Backend], deadline: float | None) -> dict[int, Any]:
        """Wait for all backends; return results or errors by the first env id of each backend.

        Raises:
            NotFinishedError: the deadline passed; the call continues.
        """
        with self.guard:
            for backend in backends:
                first_id = backend.env_ids.start
                if first_id not in self._answers and self._begun_calls:
                    self._answers[first_id] = self._answer_of(backend, deadline)
            answers, self._answers = self._answers, {}
            self._begun_calls.clear()
            self.name = None
            self.is_clear = self._barred is None and not self._has_single
        return answers

    def late_ids(self) -> list[int]:
        """Return the envs that have not answered the pending order or request."""
        ids: list[int] = np.flatnonzero(self._orders.asked != self._orders.answered).tolist()
        return ids or [
            env_id
            for backend in self._called
            if backend.env_ids.start not in self._answers
            for env_id in backend.env_ids
        ]

    def _answer_of(self, backend: Backend, deadline: float | None) -> Any:
        if backend.env_ids.start not in self._begun_calls:
            return UsageError(f"the {self.name} was interrupted; repeat it")
        try:
            return backend.finish_call(deadline)
        except RookeryError as error:
            return error


def indices(
    env_ids: Sequence[int] | npt.NDArray[np.integer] | None, num_envs: int, call: str
) -> Ids:
    """Return indices of envs, int64 ``[k]`` with k at least 1; None means all envs.

    Raises:
        ConfigError: ``env_ids`` is not a list of valid indices, for example a mask.
    """
    ids = np.arange(num_envs) if env_ids is None else np.asarray(env_ids)
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
        raise ConfigError(f"{call}: env_ids must be a list of env indices, got {env_ids!r:.200}")
    ids = ids.astype(np.int64, copy=False)
    if ids.min() < 0 or ids.max() >= num_envs:
        raise ConfigError(f"{call}: env_ids must lie in 0 to {num_envs - 1}, got {ids.tolist()}")
    return ids


class _Guard:
    """Context manager that passes exceptions to `Pending.note`."""

    def __init__(self, pending: Pending) -> None:
        self._pending = weakref.proxy(pending)

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self._pending.note(error)


class Answers:
    """Waits for the backends, and raises the failures of their envs.

    Args:
        backends: the backends of all envs.
        orders: shared rows with the orders to all envs.
        pending: the pending call.
        results: reads the arrays that the envs write.
        episodes: ended episodes; None if the autoreset mode is not disabled.
        steps_together: True if native batches step all their envs at once.
        arrivals: event that workers set when an env has answered a single order.

    Attributes:
        recorder: writes a report of each failure before it is raised; None writes none.
        finish_order: the backends; those in the calling thread come first.
        backend_of: int64 ``[n]``, index of each env's backend in ``backends``.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        orders: Orders,
        pending: Pending,
        results: Results,
        episodes: EndedEpisodes | None,
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
        """Return the error of a wait that reached its timeout."""
        late = self._pending.late_ids()
        again = "recv()" if call == "recv" else f"{call}_wait()"
        return WorkerTimeout(
            f"{call}: envs {late} have not finished within {timeout} s; they continue, and {again} "
            "may be called again",
            env_ids=late,
            command=call,
        )

    def record(self, error: RookeryError) -> None:
        """Write a report of a failure, if there is a recorder."""
        if self.recorder is not None and isinstance(error, WorkerError) and error.env_ids:
            env_id = error.env_ids[0]
            backend = self._backends[self.backend_of[env_id]]
            self.recorder.write(error, backend.since_restart(env_id))

    # ---------------------------------------------------------------- calls of all envs

    def wait_for_all(self, call: str, timeout: float | None) -> bool:
        """Wait for the pending call; raise the failure of the env with the lowest index.

        Returns:
            True if an env sent anything besides its columns, such as infos.
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        has_failed = has_extras = False
        try:
            for backend in self.finish_order:
                has_failed = backend.finish(deadline) or has_failed
                has_extras = has_extras or backend.has_extras
        except NotFinishedError:
            raise self.late(call, timeout) from None
        if has_failed:
            raise self._first_failure()
        return has_extras

    def _first_failure(self) -> RookeryError:
        """Return the failure of the env with the lowest index, and end the call."""
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
        """End a call of all envs with unreadable results, and return the error to raise."""
        self._results.written(self._pending.env_ids)
        if self._episodes is not None:
            self._episodes.note(self._pending.env_ids, self._results.buffer)
        self._pending.is_over()
        error.command = call
        self.record(error)
        return error

    # ---------------------------------------------------------------- recv

    def wait_for_some(self, min_envs: int, timeout: float | None) -> Ids:
        """Wait until ``min_envs`` envs have answered; return all that have, int64 ``[k]``.

        Raises:
            WorkerTimeout: the timeout passed.
            RookeryError: the first failure among the envs that have answered. The answers of the
                other envs remain available.
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        while True:
            if self._arrivals is not None:
                self._arrivals.clear()  # the orders are checked next
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
        """Drop an unreadable answer of one env, and return the error; keep other answers."""
        (env_id,) = error.env_ids
        self._orders.received[env_id] = self._orders.asked[env_id]
        if self._episodes is not None:
            self._episodes.note(np.array([env_id]), self._results.buffer)
        error.command = "step" if self._pending.steps[env_id] else "reset"
        self.record(error)
        return error

    def _wakes_up(self) -> bool:
        """End a long wait, so that the backends are checked."""
        self._pending.begin_again()
        return False

    def _poll(self, deadline: float | None) -> None:
        """Receive messages of the backends, and step the envs of this thread."""
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
        """Return the ids of the envs with a complete answer that was not returned yet.

        Native batches are returned as a whole.
        """
        orders = self._orders
        ready = orders.ready()
        is_partial = _IN_MESSAGE in orders.status[ready].tobytes()
        if is_partial or any(backend.needs_poll for backend in self._replaceable):
            for backend in self._backends:  # messages that arrived since the last poll
                backend.poll(deadline)
            ready = np.intersect1d(ready, orders.ready(), assume_unique=True)
        if not self._steps_together:
            return ready
        # A batch writes the words of its envs one after the other.
        late = self.backend_of[orders.asked != orders.answered]
        return ready[~np.isin(self.backend_of[ready], late)]

    def _caller_has_work(self) -> bool:
        is_busy = self._orders.asked != self._orders.answered
        parts = [backend.env_ids for backend in self._in_caller]
        return any(is_busy[ids.start : ids.stop].any() for ids in parts)

    def _has_failed(self, ready: Ids) -> bool:
        return any(
            env_id in backend.failures
            for backend in self._backends
            if backend.failures
            for env_id in ready.tolist()
        )

    def _raise_failures(self, ids: Ids) -> None:
        """Raise the first failure among envs that are ready; other answers stay available."""
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


def _forbid_in_child() -> None:
    for pending in list(_all):
        pending.forbid_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forbid_in_child)
