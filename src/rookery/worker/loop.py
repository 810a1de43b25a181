"""The loop of a worker, in a thread or a process: carry out orders and answer requests.

By default the caller decides every action. A caller that wants more done in the worker (for example
a policy that acts there) lends it memory and installs methods: it sends a factory, which is pickled
by reference. The worker calls the factory with its parts and adds the methods that it returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rookery.common.seeding import first_seed
from rookery.env.seam import Batch
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import ROWS_ONLY
from rookery.worker.failures import result_error
from rookery.worker.orders import (
    DONE,
    IN_MESSAGE,
    IN_ROWS,
    NO_SEED,
    NOTHING,
    SEED_IN_MESSAGE,
    STEP,
    Group,
    OrderPart,
    Orders,
)
from rookery.worker.protocol import INSTALL, PREPARE_RESET, Assignment, Channel, Events


class GivenUpError(BaseException):
    """The caller gave the worker up while an env was busy, and does not wait for it."""


Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class WorkerParts:
    """Parts of a worker, for a factory of installed methods.

    Attributes:
        batch: the envs.
        arrays: the arrays that the batch writes to and the caller watches.
        progress: int64 ``[3]``, see :meth:`rookery.env.batch.EnvBatch.attach`.
        memory: memory of the block that the caller lent.
        follow_seed: must be called with the first seed of an env, before its reset.
    """

    batch: Batch
    arrays: BatchArrays
    progress: Any
    memory: Any
    follow_seed: Callable[[int], None] = lambda seed: None


class RequestHandler:
    """Calls the method that a request names: an installed one, or one of the batch.

    Args:
        batch: the envs.
        arrays: the arrays that the batch writes to.
        progress: progress words, see :class:`WorkerParts`.
        follow_seed: called with the first seed of an env, see :class:`WorkerParts`.

    Attributes:
        batch: the envs.
        prepared: env id -> seed and options of a reset that will be ordered.
        memory: memory of a block that the caller lent.
    """

    def __init__(
        self,
        batch: Batch,
        arrays: BatchArrays,
        progress: Any,
        follow_seed: Callable[[int], None] = lambda seed: None,
    ) -> None:
        self.prepared: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self.memory: Any = None
        self.batch = batch
        self._arrays = arrays
        self._progress = progress
        self._follow_seed = follow_seed
        self._methods: dict[str, Callable[..., Any]] = {
            PREPARE_RESET: self.prepared.update,
            INSTALL: self._install,
        }

    def add(self, methods: Methods) -> None:
        """Add methods that requests may name."""
        self._methods.update(methods)

    def answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call the method of a request and return its result."""
        function = self._methods.get(method) or getattr(self.batch, method)
        return function(*args)

    def _install(self, factory: Callable[..., Methods], *args: Any) -> None:
        parts = WorkerParts(
            self.batch, self._arrays, self._progress, self.memory, self._follow_seed
        )
        self.add(factory(parts, *args))


class OrderServer:
    """Carries out the orders to the envs of one batch.

    Args:
        batch: the envs.
        part: the words of their orders.
        handler: contains seeds and options that came in messages.
        on_first_seed: called once, with the first seed of an env, before its reset.
        check: called before each order. An exception that it raises ends the loop.

    Attributes:
        batch: the envs.
        part: the words of their orders.
        handler: the handler of requests.
    """

    def __init__(
        self,
        batch: Batch,
        part: OrderPart,
        handler: RequestHandler,
        on_first_seed: Callable[[int], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.batch, self.part, self.handler = batch, part, handler
        self._on_first_seed, self._check = on_first_seed, check

    def carry_out(self, group: Group) -> Any:
        """Step or reset a group of envs.

        Returns:
            Content that does not fit into columns, ``ROWS_ONLY`` if the row buffer contains it, or
            None.

        Raises:
            EnvFailed: if an env raises. All other envs of the group have carried out the order.
        """
        if self._check is not None:
            self._check()
        if group.kind == STEP:
            return self.batch.step(group.buffer, group.env_ids)
        if group.kind == NOTHING:
            return None
        ids = self.part.env_ids if group.env_ids is None else group.env_ids
        resets = [
            self._reset_of(env_id, word)
            for env_id, word in zip(ids, self.part.seeds(group), strict=True)
        ]
        seeds, options = zip(*resets, strict=True)
        first = first_seed(seeds)
        if self._on_first_seed is not None and first is not None:
            self._on_first_seed(first)
            self._on_first_seed = None
        return self.batch.reset(group.buffer, ids, seeds, options)

    def _reset_of(self, env_id: int, word: int) -> tuple[int | None, dict[str, Any] | None]:
        """Return seed and options of an env's reset."""
        if word == SEED_IN_MESSAGE:
            return self.handler.prepared.pop(env_id)
        return (None if word == NO_SEED else word), None


def attached(
    batch: Batch,
    assignment: Assignment,
    arrays: BatchArrays,
    orders: Orders,
    *,
    pickles: bool = False,
    on_first_seed: Callable[[int], None] = lambda seed: None,
    check: Callable[[], None] | None = None,
) -> OrderServer:
    """Attach a batch to its part of the arrays and orders, and return a server of its orders.

    Args:
        batch: the envs.
        assignment: the envs, and the seeds to continue with if they replace lost ones.
        arrays: the arrays that the batch writes to.
        orders: the orders of all envs.
        pickles: write results in the form for another process.
        on_first_seed: see `OrderServer`. Called at once if the assignment has seeds.
        check: called before each order and after each env. An exception that it raises ends the
            loop.
    """
    part = orders.part(assignment.env_ids, assignment.index)
    batch.attach(arrays, assignment.autoreset_mode, part.progress, pickles=pickles)
    if check is not None:
        batch.check_after_env(check)
    if assignment.replaces is not None:
        batch.replace(assignment.replaces)
        first = first_seed(assignment.replaces)
        if first is not None:
            on_first_seed(first)
    handler = RequestHandler(batch, arrays, part.progress, on_first_seed)
    return OrderServer(batch, part, handler, on_first_seed, check)


def serve(channel: Channel, events: Events, server: OrderServer, first_requests: int) -> None:
    """Carry out orders and answer requests until a request to close was answered.

    Args:
        channel: transports requests as ``(method, args)``, and answers and failures back.
        events: the events between the caller and this worker.
        server: carries out orders; its handler answers requests.
        first_requests: number of requests to answer before the first order.
    """
    batch, part, handler = server.batch, server.part, server.handler
    for _ in range(first_requests):
        _answer_request(channel, handler, part)

    def nothing_to_do() -> bool:
        return not part.is_busy() and not channel.has_message()

    wait, set_done, set_arrival = events.go.wait, events.done.set, events.arrivals.set
    next_group, answer = part.next_group, part.answer
    seen, looks_for_requests, pid = 0, False, os.getpid()
    while True:
        if part.requests[0] != seen or looks_for_requests:
            seen, looks_for_requests = part.requests[0], False
            if _answer_requests(channel, handler, part):
                return
        group = next_group()
        if group is not None:
            status, payload = _outcome(server, group, channel, pid)
            part.busy_s[0] = batch.busy_s
            answer(group, status)
            (set_arrival if group.singly else set_done)()
            if status == IN_MESSAGE:
                channel.send(group.number, payload)
                payload = None  # an error keeps the caller's vector env alive
            if group.env_ids is not None or group.singly:
                continue  # there may be more
        # The caller changes a word before it sets the event, unless an interruption comes between.
        looks_for_requests = not wait(nothing_to_do)


def _answer_requests(channel: Channel, handler: RequestHandler, part: OrderPart) -> bool:
    """Answer all requests that have come. Return whether one of them was "close"."""
    while channel.has_message():
        if _answer_request(channel, handler, part):
            return True
    return False


def _answer_request(channel: Channel, handler: RequestHandler, part: OrderPart) -> bool:
    """Answer the request that has come. Return whether it was "close"."""
    (number, payload), method = channel.receive(), ""
    try:
        method, args = channel.decode(payload)
        result = handler.answer(method, args)
        try:
            answer = channel.encode(result)
        except Exception as error:
            raise result_error(handler.batch, method, args, result, error) from error
    except GivenUpError:
        raise
    except BaseException as error:  # the caller raises it
        answer = channel.failure(error)
    part.busy_s[0] = handler.batch.busy_s  # a policy in the worker steps envs during a request
    channel.send(number, answer)
    return bool(method == "close")


def _outcome(server: OrderServer, group: Group, channel: Channel, pid: int) -> tuple[int, Any]:
    """Carry out an order. Return the status of the answer and the content of its message."""
    try:
        content = server.carry_out(group)
        if content is None:
            return _DONE
        return (IN_ROWS, None) if content is ROWS_ONLY else (IN_MESSAGE, channel.encode(content))
    except BaseException as error:  # the caller raises it
        if isinstance(error, GivenUpError) or os.getpid() != pid:
            raise  # the caller does not wait, or an env has forked this process
        return IN_MESSAGE, channel.failure(error)


_DONE = DONE, None
