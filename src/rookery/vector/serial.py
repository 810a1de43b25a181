"""Envs in the calling thread, and the serial vector env, which every other backend must equal."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.env_errors import in_words
from rookery.common.resources import NOTHING_KNOWN, ProcessUse
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.env.seam import Batch
from rookery.errors import ConfigError, RookeryError, UsageError
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import ROWS_ONLY, RowExtras, RowShape
from rookery.shared.row_reader import RowReader
from rookery.vector.agreement import ObservationMode, parse_autoreset_mode
from rookery.vector.base import VectorEnv
from rookery.worker.fault_policy import RestartCause
from rookery.worker.loop import OrderServer, RequestHandler
from rookery.worker.orders import DONE, IN_ROWS, RESET, STEP, Group, Order, Orders


class SerialVectorEnv(VectorEnv):
    """A vector env that steps its envs one after the other, in the calling thread.

    Args:
        env_fns: one callable per env (or ids, EnvSpecs or recipes).
        copy: False returns views, valid until the step after the next.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.

    Raises:
        EnvFailed: an env cannot be built.
    """

    backend = "serial"

    def __init__(
        self,
        env_fns: Sequence[Callable[..., Any] | EnvRecipe],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        mode = parse_autoreset_mode(autoreset_mode)
        self._open(EnvBatch(as_recipes(env_fns), first_id=0), mode, observation_mode, copy)

    @classmethod
    def of_batch(
        cls, batch: Batch, mode: AutoresetMode, copy: bool, pickles: bool = False
    ) -> SerialVectorEnv:
        """Return a vector env of any batch, which it closes.

        Args:
            batch: the envs.
            mode: autoreset mode.
            copy: False returns views, valid until the step after the next.
            pickles: write and read results in the form for another process.
        """
        venv = cls.__new__(cls)
        venv._open(batch, mode, "same", copy, pickles)
        return venv

    def _open(
        self,
        batch: Batch,
        mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        pickles: bool = False,
    ) -> None:
        self._batch = batch
        try:
            orders = Orders.in_memory(len(batch.ids), num_workers=0)
            backend = LocalBackend(batch, batch.ids, orders)
            spaces = self._agree([batch.ids], [batch.describe()], mode, observation_mode, copy)
            arrays = BatchArrays.in_memory(spaces, keeps_objects=not pickles)
            backend.attach(arrays, mode, pickles)
            self._ready([backend], arrays, orders, copy)
        except BaseException:
            batch.close()
            raise

    @property
    def envs(self) -> Sequence[Any]:
        """The env objects."""
        return self._batch.envs

    def _enlarge_rows(self, shape: RowShape) -> None:
        self._arrays.enlarge_rows_in_memory(shape)


class LocalBackend:
    """A backend in the calling thread, which carries out orders when the caller waits for them.

    Args:
        batch: the envs.
        env_ids: indices of the envs in the vector env.
        orders: orders to all envs of the vector env.
    """

    steps_in_caller = True
    node = None
    restarts = 0
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
        self._running: Group | None = None  # remains set if an interruption stops it
        self._is_torn = False  # an order was interrupted since the last reset of all envs
        self._attach_again: Callable[[], None] = lambda: None
        self._request: tuple[str, tuple[Any, ...]] | None = None
        self._step: int | None = None  # buffer of a pending step of all envs
        self._has_orders = False
        self.has_extras = False

    def attach(self, arrays: BatchArrays, mode: AutoresetMode, pickles: bool = False) -> None:
        """Set the arrays of the batch; see :class:`rookery.env.seam.Batch`."""
        progress = self._part.progress
        self._attach_again = partial(self._batch.attach, arrays, mode, progress, pickles=pickles)
        self._attach_again()

    @property
    def busy_s(self) -> float:
        """Seconds spent stepping."""
        return float(self._batch.busy_s)

    @property
    def steps_made(self) -> int:
        """Number of steps of all its envs."""
        return int(self._part.progress[1])

    @property
    def causes(self) -> tuple[RestartCause, ...]:
        """Reasons of replacements; always empty, because the caller cannot be replaced."""
        return ()

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Return None, because the caller cannot be replaced."""
        return None

    def process_use(self, looks: bool) -> ProcessUse:
        """Return nothing: the calling process is measured by the vector env."""
        return NOTHING_KNOWN

    @property
    def is_torn(self) -> bool:
        """True if an interruption left a state that only a reset can repair."""
        return self._is_torn or self._running is not None

    def begin_step(self, buffer: int, number: int) -> None:
        """Begin a step of all envs, which :meth:`finish` carries out."""
        self._step = buffer

    def begin(self, order: Order) -> None:
        """Begin an order, which :meth:`poll` or :meth:`finish` carries out."""
        self._has_orders = True
        if order.kind & RESET and (
            order.env_ids is None or len(order.env_ids) == len(self.env_ids)
        ):
            if self.is_torn:  # a row may be incomplete, and infos may be lost
                self._attach_again()
            self._is_torn, self._running, self._step = False, None, None
        self._part.ask(order)

    def poll(self, deadline: float | None = None) -> None:
        """Carry out the oldest order, if any."""
        self._is_torn = self._is_torn or self._running is not None
        group = self._running or self._part.next_group()
        if group is None:
            return
        if self._is_torn:
            self._refuse(group)
            return
        self._running = group
        status, error = DONE, None
        try:
            extras = self._server.carry_out(group)
            if extras is not None:
                status = IN_ROWS
                if extras is not ROWS_ONLY:
                    self._pass_on(extras)
        except RookeryError as failure:
            error = failure
        if error is not None:
            self.failures.update(dict.fromkeys(_envs_of(error, group, self.env_ids), error))
        self._part.answer(group, status)
        self._running = None

    def finish(self, deadline: float | None = None) -> bool:
        """Carry out all orders; a deadline cannot interrupt them."""
        if self._step is not None:
            self._carry_out_step(self._step)
        if self._has_orders:
            while self._part.is_busy():
                self.poll()
            self._has_orders = False
            self.has_extras = True
        return bool(self.failures)

    def _carry_out_step(self, buffer: int) -> None:
        """Step all envs."""
        if self._running is not None or self._is_torn:
            self._is_torn = True
            self._running = self._step = None
            self.failures[self.env_ids[0]] = _interrupted()
            return
        self._running = _WHOLE
        extras = None
        try:
            extras = self._batch.step(buffer)
        except RookeryError as error:
            self.failures.update(dict.fromkeys(_envs_of(error, _WHOLE, self.env_ids), error))
        self.has_extras = extras is not None
        if extras is not None and extras is not ROWS_ONLY:
            self._pass_on(extras)
        self._running = self._step = None

    def _pass_on(self, extras: RowExtras) -> None:
        if self.reader is not None:
            self.reader.take_extras(extras)

    def forget(self) -> None:
        """Drop failures, and orders that were interrupted."""
        self.failures.clear()
        self._request = self._step = None

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Do nothing: the batch remembers seeds itself."""

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """Return a request with seed and options of the next reset, by env."""
        return "prepare_reset", (prepared,)

    def tell_reset(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Pass the request of :meth:`prepare_reset` to the batch."""
        self._handler.answer(*request)

    def request(self, method: str, *args: Any) -> tuple[str, tuple[Any, ...]]:
        """Return a request to call a method of the batch."""
        return method, args

    def begin_call(self, request: tuple[str, tuple[Any, ...]]) -> None:
        """Store a request, which :meth:`finish_call` carries out."""
        if self._is_torn:
            raise _interrupted()
        self._request = request

    def finish_call(self, deadline: float | None = None) -> Any:
        """Carry out the stored request; a deadline cannot interrupt it."""
        request, self._request = self._request, None
        if request is None:
            raise UsageError("The call was interrupted; repeat it, or reset() all envs")
        return self._handler.answer(*request)

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Do nothing: the batch uses the arrays of the vector env."""

    def begin_close(self, deadline: float) -> bool:
        """Carry out the stored request, then store one that closes the envs."""
        if self._request is not None:
            with suppress(RookeryError):  # its result is dropped
                self.finish_call()
        self._request = "close", ()
        return True

    def stop(self, deadline: float) -> None:
        """Do nothing: a closed batch has no resources."""

    def _refuse(self, group: Group) -> None:
        """Answer an order with an error: an interruption left the envs at different steps."""
        ids = self.env_ids if group.env_ids is None else group.env_ids
        self.failures[ids[0]] = _interrupted()
        self._part.answer(group, DONE)
        self._running = None


_WHOLE = Group(0, STEP, 0, 0, None)


def _interrupted() -> UsageError:
    return UsageError(
        "An earlier call was interrupted after some of its envs had been stepped; reset() all "
        "envs before other calls"
    )


def _envs_of(error: RookeryError, group: Group, env_ids: range) -> Sequence[int]:
    """Return the envs of an error; by default the first env of the order."""
    ids: Sequence[int] = getattr(error, "env_ids", ())
    return ids or [env_ids[0] if group.env_ids is None else group.env_ids[0]]


def as_recipes(env_fns: Sequence[Any]) -> list[EnvRecipe]:
    """Return the recipes of a list of callables, ids, EnvSpecs or recipes.

    Raises:
        ConfigError: the list is empty, or not a list.
    """
    if isinstance(env_fns, (str, EnvRecipe)) or not hasattr(env_fns, "__len__"):
        raise ConfigError(
            f"env_fns must be a list of callables that each return an env, got "
            f"{in_words(env_fns)}; rookery.make_vec takes one id or callable, and num_envs"
        )
    if not len(env_fns):
        raise ConfigError("env_fns is empty; a vector env needs at least one env")
    return [fn if isinstance(fn, EnvRecipe) else make_recipes(fn, 1, None, ())[0] for fn in env_fns]
