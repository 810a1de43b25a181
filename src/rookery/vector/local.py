"""LocalBackend: envs that the calling thread steps while it waits for results."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.resources import NOTHING_KNOWN, ProcessUse
from rookery.env.seam import Batch
from rookery.errors import RookeryError, UsageError
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import ROWS_ONLY, RowExtras, RowShape
from rookery.shared.row_reader import RowReader
from rookery.worker.fault_policy import RestartCause
from rookery.worker.loop import OrderServer, RequestHandler
from rookery.worker.orders import DONE, IN_ROWS, RESET, STEP, Group, Order, Orders


class LocalBackend:
    """A backend in the calling thread.

    Args:
        batch: the envs.
        env_ids: indices of the envs in the vector env.
        orders: orders to all envs of the vector env.
    """

    steps_in_caller = True
    node = None
    restarts = 0  # there is no worker
    is_replaceable = needs_poll = False

    def __init__(self, batch: Batch, env_ids: range, orders: Orders) -> None:
        self.env_ids = env_ids
        self.pid = os.getpid()
        self.failures: dict[int, RookeryError] = {}
        self.reader: RowReader | None = None
        self._batch = batch
        self._part = orders.part(env_ids, None)
        self._handler = RequestHandler(batch, None, None)  # type: ignore[arg-type]
        self._server = OrderServer(batch, self._part, self._handler)
        self._under_way: Group | None = None  # remains set if an exception interrupts it
        self._is_torn = False  # an order was interrupted since the last reset of all envs
        self._attach_again: Callable[[], None] = lambda: None
        self._request: tuple[str, tuple[Any, ...]] | None = None
        self._step: int | None = None  # the buffer of the ordered step of all envs
        self._has_asked = False
        self.has_told = False

    def attach(self, arrays: BatchArrays, mode: AutoresetMode, travels: bool = False) -> None:
        """Connect the batch to its arrays; see :class:`rookery.env.seam.Batch`."""
        progress = self._part.progress
        self._attach_again = partial(self._batch.attach, arrays, mode, progress, travels=travels)
        self._attach_again()

    @property
    def busy_s(self) -> float:
        """Seconds spent stepping."""
        return float(self._batch.busy_s)

    @property
    def steps_made(self) -> int:
        """Steps of all its envs."""
        return int(self._part.progress[1])

    @property
    def causes(self) -> tuple[RestartCause, ...]:
        """Causes of restarts: always empty."""
        return ()

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Return None, because the caller is never replaced."""
        return None

    def process_use(self, looks: bool) -> ProcessUse:
        """Return nothing; the caller's process is measured by the vector env."""
        return NOTHING_KNOWN

    @property
    def is_torn(self) -> bool:
        """True if an interruption left a state that only a reset can repair."""
        return self._is_torn or self._under_way is not None

    def begin_step(self, buffer: int, number: int) -> None:
        """Order a step of all envs, which `finish` makes."""
        self._step = buffer

    def begin(self, order: Order) -> None:
        """Accept an order, which `finish` carries out."""
        self._has_asked = True
        if order.kind & RESET and (
            order.env_ids is None or len(order.env_ids) == len(self.env_ids)
        ):
            if self.is_torn:  # a row may be incomplete, and messages may be lost
                self._attach_again()
            self._is_torn, self._under_way, self._step = False, None, None
        self._part.ask(order)

    def poll(self, deadline: float | None = None) -> None:
        """Carry out the first pending order, if any."""
        self._is_torn = self._is_torn or self._under_way is not None
        group = self._under_way or self._part.next_group()
        if group is None:
            return
        if self._is_torn:
            self._refuse(group)
            return
        self._under_way = group
        status, error = DONE, None
        try:
            news = self._server.carry_out(group)
            if news is not None:
                status = IN_ROWS
                if news is not ROWS_ONLY:
                    self._tell(news)
        except RookeryError as failure:
            error = failure
        if error is not None:
            self.failures.update(dict.fromkeys(_envs_of(error, group, self.env_ids), error))
        self._part.answer(group, status)
        self._under_way = None

    def finish(self, deadline: float | None = None) -> bool:
        """Carry out all orders; a deadline cannot interrupt them."""
        if self._step is not None:
            self._carry_out_step(self._step)
        if self._has_asked:
            while self._part.is_busy():
                self.poll()
            self._has_asked = False
            self.has_told = True
        return bool(self.failures)

    def _carry_out_step(self, buffer: int) -> None:
        """Step all envs."""
        if self._under_way is not None or self._is_torn:
            self._is_torn = True
            self._under_way = self._step = None
            self.failures[self.env_ids[0]] = _cut_short()
            return
        self._under_way = _WHOLE
        news = None
        try:
            news = self._batch.step(buffer)
        except RookeryError as error:
            self.failures.update(dict.fromkeys(_envs_of(error, _WHOLE, self.env_ids), error))
        self.has_told = news is not None
        if news is not None and news is not ROWS_ONLY:
            self._tell(news)
        self._under_way = self._step = None

    def _tell(self, news: RowExtras) -> None:
        if self.reader is not None:
            self.reader.take_extras(news)

    def forget(self) -> None:
        """Drop failures and interrupted requests."""
        self.failures.clear()
        self._request = self._step = None

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Do nothing, because the batch remembers its seeds."""

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """Return a request with seed and options of the next reset, by env."""
        return "prepare_reset", (prepared,)

    def tell_reset(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Pass seeds and options to the batch before the reset."""
        self._handler.answer(*request)

    def request(self, method: str, *args: Any) -> tuple[str, tuple[Any, ...]]:
        """Return a request to call a method of the batch."""
        return method, args

    def begin_call(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Accept a request, which `finish_call` carries out."""
        if self._is_torn:
            raise _cut_short()
        self._request = request

    def finish_call(self, deadline: float | None = None) -> Any:
        """Carry out the request; a deadline cannot interrupt it."""
        request, self._request = self._request, None
        if request is None:
            raise UsageError(
                "the call was cut short by an interruption; repeat it, or reset() all envs"
            )
        return self._handler.answer(*request)

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Do nothing, because the batch uses the arrays of the vector env."""

    def begin_close(self, deadline: float) -> bool:
        """Close the envs in `finish_call`, after a pending request."""
        if self._request is not None:
            try:
                self.finish_call()
            except RookeryError:  # its result is not needed
                self._request = None
        self._request = "close", ()
        return True

    def stop(self, deadline: float) -> None:
        """Do nothing, because a closed batch has released everything."""

    def _refuse(self, group: Group) -> None:
        """Answer with an error, because an interruption left some envs stepped and others not."""
        ids = self.env_ids if group.env_ids is None else group.env_ids
        self.failures[ids[0]] = _cut_short()
        self._part.answer(group, DONE)
        self._under_way = None


_WHOLE = Group(0, STEP, 0, 0, None)


def _cut_short() -> UsageError:
    return UsageError(
        "a call was cut short by an interruption after some of its envs had been stepped; "
        "reset() all envs to continue"
    )


def _envs_of(error: RookeryError, group: Group, env_ids: range) -> Sequence[int]:
    """Return the envs that an error of an order affects."""
    ids: Sequence[int] = getattr(error, "env_ids", ())
    return ids or [env_ids[0] if group.env_ids is None else group.env_ids[0]]
