"""Pending: what a vector env has under way, and which calls that allows."""

from __future__ import annotations

import os
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
)
from rookery.vector.backend import Backend
from rookery.worker.orders import RESET, Order, Orders
from rookery.worker.protocol import NotFinishedError

Ids = npt.NDArray[np.int64]

_all: weakref.WeakSet[Pending] = weakref.WeakSet()


class Pending:
    """At most one call of all envs is under way, or any number of orders to single ones.

    Beginning leaves nothing half done: what an exception has interrupted (a Ctrl-C, a signal
    handler that raises) is begun again by whoever waits for it.

    Args:
        orders: to all envs.
        backends: of all envs.

    Attributes:
        name: the call of all envs that is under way, None if there is none.
        was_cut_short: whether an exception that is not ours has left something under way.
        env_ids: whose call it is; an index.
        is_begun: False while a beginning is under way, or was interrupted.
        steps: bool ``[n]``, whether the last order to each env alone was a step.
    """

    def __init__(self, orders: Orders, backends: Sequence[Backend]) -> None:
        self.name: str | None = None
        self.was_cut_short = False
        self.env_ids: Any = ...
        self.steps = np.zeros(len(orders.asked), np.bool_)
        self._orders = orders
        self._begin_steps = tuple(backend.begin_step for backend in backends)
        self._step: tuple[int, int] | None = None  # of all envs: buffer and number; or
        self._begins: Sequence[tuple[Backend, Order]] = ()  # orders to some
        self.is_begun = True
        self._has_single = False  # whether orders to single envs may be under way
        self._called: tuple[Backend, ...] = ()  # who was given the last request
        self._begun_calls: set[int] = set()
        self._answers: dict[int, Any] = {}
        self.guard = _Guard(self)
        self.is_clear = True  # nothing is under way, and nothing keeps calls from being made
        self._barred: RookeryError | None = None  # what every call meets

    def watch_forks(self) -> None:
        """Have forked copies of this process refuse all calls."""
        _all.add(self)

    # ---------------------------------------------------------------- which calls are allowed

    def beginning(self, call: str) -> _Guard:
        """A context in which a call of all envs is begun; only a reset may come at any time."""
        if (
            self.name is not None
            or self._has_single
            or self._barred is not None
            or self.was_cut_short
        ) and not (call == "reset" and self.was_cut_short and self._barred is None):
            self.require_idle(call)
        return self.guard

    def finishing(self, call: str) -> _Guard:
        """A context in which the call of all envs that is under way is waited for."""
        self.require_call(call)
        self.begin_again()
        return self.guard

    def require_idle(self, call: str) -> None:
        """Complain if anything is under way.

        Raises:
            ClosedError, PendingCallError: then.
        """
        self.require_no_call(call)
        if self._has_single:
            num_busy = self.num_busy()
            if num_busy:
                raise PendingCallError(
                    f"{call}: {num_busy} envs still have an answer under way; recv() returns it",
                    "recv",
                )
            self._has_single = False
        self.was_cut_short = False
        self.is_clear = True

    def require_no_call(self, call: str) -> None:
        """Complain if a call of all envs is under way."""
        self.require_open(call)
        if self.name is None:
            return
        ends = f"{self.name}_wait() ends it"
        if self.name in ("apply", "set_attr") or self.was_cut_short:
            ends += ", reset() drops it" if self.name in ("step", "reset", "call") else ""
        if self.name in ("apply", "set_attr"):
            ends = "it was interrupted; reset() drops it"
        raise PendingCallError(f"{call}: a {self.name} is still under way; {ends}", self.name)

    def require_call(self, call: str) -> None:
        """Complain if this very call is not under way."""
        self.require_open(call)
        if self.name != call:
            raise NoPendingCallError(f"{call}_wait: no {call} was begun", call)

    def require_open(self, call: str) -> None:
        """Complain if no call is possible any more."""
        if self._barred is not None:
            raise type(self._barred)(f"{call}: {self._barred}")

    def close(self) -> str | None:
        """From now on, no call is possible; the name of one whose result nobody has asked for."""
        self._barred, self.is_clear = ClosedError("this vector env is closed"), False
        left, self.name = None if self.was_cut_short else self.name, None
        return left

    def let_go(self) -> None:
        """Give back shared memory, which goes with the last reference to it."""
        self._begin_steps, self._begins, self._called, self._has_single = (), (), (), False
        self.__dict__.pop("_orders", None)

    def forbid_in_child(self) -> None:
        """From now on, in this forked copy of the process, no call is possible."""
        self.is_clear = False
        self._barred = UsageError(
            f"this vector env belongs to process {os.getppid()}, of which this process is a forked "
            "copy; its workers serve one caller. Make another vector env here"
        )

    # ---------------------------------------------------------------- orders

    def begin(self, name: str, env_ids: Any, begins: Sequence[tuple[Backend, Order]]) -> None:
        """Give orders to some backends; ``"recv"`` names orders to single envs."""
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
        """Take in an exception that leaves a call: one that is not ours may have cut it short.

        Raises:
            ClosedError: in its place, where the vector env was closed amid the call, by another
                thread or by a signal's handler.
        """
        is_closed = isinstance(self._barred, ClosedError)
        if is_closed and isinstance(error, Exception) and not isinstance(error, ClosedError):
            raise ClosedError("this vector env was closed amid a call") from error
        # A wait that was ended by its deadline is no interruption: it can be taken up again.
        if not isinstance(error, (RookeryError, NotFinishedError)):
            self.was_cut_short = self.name is not None or self.num_busy() > 0
            self.is_clear = self.is_clear and not self.was_cut_short

    def begin_again(self) -> None:
        """Complete a beginning that was interrupted."""
        if self.is_begun:
            return
        if self._step is not None:
            self.begin_step(*self._step)
            return
        for backend, order in self._begins:
            backend.begin(order)
        self.is_begun = True

    def is_over(self) -> None:
        """Take in that the call of all envs is done, and its results are handed out."""
        self.name, self.was_cut_short, self._has_single = None, False, False
        self.is_clear = self._barred is None

    def dropped(self) -> Any:
        """Whose steps and resets nobody is going to be given; an index."""
        if self.name in ("step", "reset"):
            return self.env_ids
        return np.flatnonzero((self._orders.asked != self._orders.received) & self._has_single)

    def num_busy(self) -> int:
        """How many envs have an answer of their own that was not handed out."""
        if not self._has_single:
            return 0
        return int(np.count_nonzero(self._orders.asked != self._orders.received))

    def choose(self, env_ids: Sequence[int] | npt.NDArray[np.integer] | None, call: str) -> Ids:
        """Check which envs are meant: int64 ``[k]``, each once, none of them busy.

        Raises:
            ConfigError: when they cannot be.
            PendingCallError: when an answer of one of them is still under way.
        """
        self.require_no_call(call)
        orders = self._orders
        if not self._has_single:  # answers to all envs together are handed out together
            orders.received[:] = orders.asked
        ids = indices(env_ids, len(orders.asked), call)
        if len(ids) > 1 and np.bincount(ids).max() > 1:
            raise ConfigError(f"{call}: env_ids names an env twice: {ids.tolist()}")
        busy = ids[orders.asked[ids] != orders.received[ids]]
        if len(busy):
            raise PendingCallError(
                f"{call}: envs {busy.tolist()} still have an answer under way; recv() returns it",
                "recv",
            )
        return ids

    # ---------------------------------------------------------------- requests

    def begin_call(self, name: str, requests: Sequence[tuple[Backend, Any]]) -> None:
        """Give a request to every backend; those that cannot take it have failed."""
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
        """Wait until all backends have answered: results or errors, by their first env id.

        Raises:
            NotFinishedError: when the deadline passed; the call goes on.
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
        """Envs that have not done what they were told: an order, or else a request."""
        ids: list[int] = np.flatnonzero(self._orders.asked != self._orders.answered).tolist()
        return ids or [
            env_id
            for backend in self._called
            if backend.env_ids.start not in self._answers
            for env_id in backend.env_ids
        ]

    def _answer_of(self, backend: Backend, deadline: float | None) -> Any:
        if backend.env_ids.start not in self._begun_calls:
            return UsageError(f"The {self.name} was cut short by an interruption; make it again")
        try:
            return backend.finish_call(deadline)
        except RookeryError as error:
            return error


def indices(
    env_ids: Sequence[int] | npt.NDArray[np.integer] | None, num_envs: int, call: str
) -> Ids:
    """Indices of envs, int64 ``[k]``, k at least 1; None means all.

    Raises:
        ConfigError: when that cannot be meant; a mask is no list of indices.
    """
    ids = np.arange(num_envs) if env_ids is None else np.asarray(env_ids)
    if ids.ndim != 1 or not len(ids) or ids.dtype.kind not in "iu":
        raise ConfigError(f"{call}: env_ids must be a list of env indices, got {env_ids!r:.200}")
    ids = ids.astype(np.int64, copy=False)
    if ids.min() < 0 or ids.max() >= num_envs:
        raise ConfigError(f"{call}: env_ids must lie in 0 to {num_envs - 1}, got {ids.tolist()}")
    return ids


class _Guard:
    """Notices exceptions that are not ours and leave something under way."""

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
        # A wait that was ended by its deadline is no interruption: it can be taken up again.
        if error is not None:
            self._pending.note(error)


def _forbid_in_child() -> None:
    for pending in list(_all):
        pending.forbid_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forbid_in_child)
