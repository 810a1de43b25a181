"""LocalBackend: envs stepped by the calling thread itself, while it waits for them."""

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
    """A batch in the calling thread.

    Args:
        batch: the envs; it has its arrays already.
        env_ids: their indices in the vector env.
        orders: to all envs of the vector env.
    """

    steps_in_caller = True
    node = None
    restarts = 0  # of no worker
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
        self._under_way: Group | None = None  # still there if it was cut short
        self._is_torn = False  # something was cut short since the last reset of all envs
        self._attach_again: Callable[[], None] = lambda: None
        self._request: tuple[str, tuple[Any, ...]] | None = None
        self._step: int | None = None  # the buffer of a step of all envs that is to be made
        self._has_asked = False
        self.has_told = False

    def attach(self, arrays: BatchArrays, mode: AutoresetMode, travels: bool = False) -> None:
        """Give the batch its arrays; see :class:`rookery.env.seam.Batch`."""
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
        """Nobody replaces the caller."""
        return ()

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Nobody replaces the caller."""
        return None

    def process_use(self, looks: bool) -> ProcessUse:
        """It has none of its own; the caller's is looked at once."""
        return NOTHING_KNOWN

    @property
    def is_torn(self) -> bool:
        """Whether an interruption has left something that only a reset can mend."""
        return self._is_torn or self._under_way is not None

    def begin_step(self, buffer: int, number: int) -> None:
        """Note a step of all envs; nobody else steps them, so nothing need be written down."""
        self._step = buffer

    def begin(self, order: Order) -> None:
        """Note an order; it is carried out when it is waited for."""
        self._has_asked = True
        if order.kind & RESET and (
            order.env_ids is None or len(order.env_ids) == len(self.env_ids)
        ):
            if self.is_torn:  # half a row may be written, and what is new may not have been told
                self._attach_again()
            self._is_torn, self._under_way, self._step = False, None, None
        self._part.ask(order)

    def poll(self, deadline: float | None = None) -> None:
        """Carry out the order that was given first; nothing if there is none."""
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
        """Drop what went wrong, and what was cut short."""
        self.failures.clear()
        self._request = self._step = None

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """The batch remembers them itself."""

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """A request that says, by env, seed and options of the reset that will be ordered."""
        return "prepare_reset", (prepared,)

    def tell_reset(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Note it where the reset will look for it."""
        self._handler.answer(*request)

    def request(self, method: str, *args: Any) -> tuple[str, tuple[Any, ...]]:
        """A call of a method of the batch."""
        return method, args

    def begin_call(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Note what was requested."""
        if self._is_torn:
            raise _cut_short()
        self._request = request

    def finish_call(self, deadline: float | None = None) -> Any:
        """Do what was noted; a deadline cannot interrupt it."""
        request, self._request = self._request, None
        if request is None:
            raise UsageError(
                "The call was cut short by an interruption; make it again, or reset() all envs"
            )
        return self._handler.answer(*request)

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """The batch sees the arrays that everybody has."""

    def begin_close(self, deadline: float) -> bool:
        """Note that the envs are to be closed, after what was requested before."""
        if self._request is not None:
            try:
                self.finish_call()
            except RookeryError:  # nobody has asked for its result
                self._request = None
        self._request = "close", ()
        return True

    def stop(self, deadline: float) -> None:
        """Nothing is left to give back once the batch is closed."""

    def _refuse(self, group: Group) -> None:
        """Answer in place of envs of which an interruption has stepped some, and some not."""
        ids = self.env_ids if group.env_ids is None else group.env_ids
        self.failures[ids[0]] = _cut_short()
        self._part.answer(group, DONE)
        self._under_way = None


_WHOLE = Group(0, STEP, 0, 0, None)


def _cut_short() -> UsageError:
    return UsageError(
        "A call was cut short by an interruption after some of its envs had been stepped; "
        "reset() all envs, and go on from there"
    )


def _envs_of(error: RookeryError, group: Group, env_ids: range) -> Sequence[int]:
    """Who is concerned by what an order raised."""
    ids: Sequence[int] = getattr(error, "env_ids", ())
    return ids or [env_ids[0] if group.env_ids is None else group.env_ids[0]]
