"""The side of the envs, in a thread or a process: carry out orders and requests.

A worker steps envs for a caller who decides every action. Whoever wants more done there (a policy
that acts in the worker, say) lends it memory and installs something: a factory travels by
reference, is called with the worker's parts, and returns further methods, by name.
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
from rookery.worker.channel import Channel
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
from rookery.worker.protocol import INSTALL, PREPARE_RESET, Assignment, Bells
from rookery.worker.unsendable import result_error


class GivenUpError(BaseException):
    """The worker was given up while an env was busy; nobody waits for it any more."""


Methods = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True)
class WorkerParts:
    """What an installed factory finds in a worker.

    Attributes:
        batch: the envs.
        arrays: that the batch writes to and the caller watches.
        progress: int64 ``[3]``, see :meth:`rookery.env.batch.EnvBatch.attach`.
        memory: of the block that was lent.
        follow_seed: to be called with the first seed that an env is given, before its reset.
    """

    batch: Batch
    arrays: BatchArrays
    progress: Any
    memory: Any
    follow_seed: Callable[[int], None] = lambda seed: None


class RequestHandler:
    """Finds the method that a request names; methods that were installed go first.

    Args:
        batch: the envs.
        arrays: that the batch writes to.
        progress: see :class:`WorkerParts`.
        follow_seed: likewise.

    Attributes:
        batch: as given.
        prepared: by env id, seed and options of a reset that will be ordered.
        memory: of a block that was lent.
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
        """Answer further requests."""
        self._methods.update(methods)

    def answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """Do what a request asks."""
        function = self._methods.get(method)
        if function is None:
            function = getattr(self.batch, method)
        return function(*args)

    def _install(self, factory: Callable[..., Methods], *args: Any) -> None:
        own = self.batch, self._arrays, self._progress
        parts = WorkerParts(*own, self.memory, self._follow_seed)
        self.add(factory(parts, *args))


class OrderServer:
    """Carries out what the envs of one batch are ordered to do.

    Args:
        batch: the envs.
        part: the words of their orders.
        handler: has seeds and options that came in messages.
        on_first_seed: called once, with the first seed that an env is given, before its reset.
        check: called with every order, before it is carried out; what it raises ends the service.

    Attributes:
        batch, part, handler: as given.
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
            What is to be told beside the columns, ``ROWS_ONLY`` or None.

        Raises:
            EnvFailed: when an env raises; all others of the group have done as they were told.
        """
        if self._check is not None:
            self._check()
        if group.kind == STEP:
            return self.batch.step(group.buffer, group.env_ids)
        if group.kind == NOTHING:
            return None
        ids = self.part.env_ids if group.env_ids is None else group.env_ids
        told = [
            self._reset_of(env_id, word)
            for env_id, word in zip(ids, self.part.seeds(group), strict=True)
        ]
        seeds, options = zip(*told, strict=True)
        first = first_seed(seeds)
        if self._on_first_seed is not None and first is not None:
            self._on_first_seed(first)
            self._on_first_seed = None
        return self.batch.reset(group.buffer, ids, seeds, options)

    def _reset_of(self, env_id: int, word: int) -> tuple[int | None, dict[str, Any] | None]:
        """Seed and options of an env's reset."""
        if word == SEED_IN_MESSAGE:
            return self.handler.prepared.pop(env_id)
        return (None if word == NO_SEED else word), None


def attached(
    batch: Batch,
    assignment: Assignment,
    arrays: BatchArrays,
    orders: Orders,
    *,
    travels: bool = False,
    on_first_seed: Callable[[int], None] = lambda seed: None,
    check: Callable[[], None] | None = None,
) -> OrderServer:
    """Give a batch its part of the arrays and of the orders, or that of a batch that was lost.

    Args:
        batch: the envs.
        assignment: which envs they are, and what they replace.
        arrays: that the batch writes to.
        orders: of all envs.
        travels: whether the caller is another process.
        on_first_seed: see `OrderServer`; called now if the batch that was lost was given seeds.
        check: called with every order and after every env; what it raises ends the service.
    """
    part = orders.part(assignment.env_ids, assignment.index)
    batch.attach(arrays, assignment.autoreset_mode, part.progress, travels=travels)
    if check is not None:
        batch.check_after_env(check)
    if assignment.replaces is not None:
        batch.replace(assignment.replaces)
        first = first_seed(assignment.replaces)
        if first is not None:
            on_first_seed(first)
    handler = RequestHandler(batch, arrays, part.progress, on_first_seed)
    return OrderServer(batch, part, handler, on_first_seed, check)


def serve(channel: Channel, bells: Bells, server: OrderServer, first_requests: int) -> None:
    """Serve until a request to close has been answered.

    Args:
        channel: requests come through it as ``(method, args)``; answers and failures go back.
        bells: between the caller and us.
        server: carries out orders; its handler answers requests.
        first_requests: how many come before any order.
    """
    batch, part, handler = server.batch, server.part, server.handler
    for _ in range(first_requests):
        _answer_request(channel, handler, part)

    def nothing_to_do() -> bool:
        return not part.is_busy() and not channel.has_message()

    wait, ring_done, ring_arrival = bells.go.wait, bells.done.ring, bells.arrivals.ring
    next_group, answer = part.next_group, part.answer
    heard, looks_for_requests, pid = 0, False, os.getpid()
    while True:
        if part.requests[0] != heard or looks_for_requests:
            heard, looks_for_requests = part.requests[0], False
            if _answer_requests(channel, handler, part):
                return
        group = next_group()
        if group is not None:
            status, payload = _outcome(server, group, channel, pid)
            part.busy_s[0] = batch.busy_s
            answer(group, status)
            (ring_arrival if group.singly else ring_done)()
            if status == IN_MESSAGE:
                channel.send(group.number, payload)
                payload = None  # an error, once raised, holds the vector env of whoever caught it
            if group.env_ids is not None or group.singly:
                continue  # there may be more
        # Whoever rings has written a word; only an interruption can leave a request without one.
        looks_for_requests = not wait(nothing_to_do)


def _answer_requests(channel: Channel, handler: RequestHandler, part: OrderPart) -> bool:
    """Answer what requests have come; whether the last was among them."""
    while channel.has_message():
        if _answer_request(channel, handler, part):
            return True
    return False


def _answer_request(channel: Channel, handler: RequestHandler, part: OrderPart) -> bool:
    """Answer the request that has come; whether it was the last."""
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
    except BaseException as error:  # whatever an env does, the caller hears of it
        answer = channel.failure(error)
    part.busy_s[0] = handler.batch.busy_s  # a policy that acts here has the envs stepped by request
    channel.send(number, answer)
    return bool(method == "close")


def _outcome(server: OrderServer, group: Group, channel: Channel, pid: int) -> tuple[int, Any]:
    """Carry out an order: the status of the answer, and what goes with it as a message."""
    try:
        news = server.carry_out(group)
        if news is None:
            return _DONE
        return (IN_ROWS, None) if news is ROWS_ONLY else (IN_MESSAGE, channel.encode(news))
    except BaseException as error:  # whatever an env does, the caller hears of it
        if isinstance(error, GivenUpError) or os.getpid() != pid:
            raise  # nobody waits for it, or this is a copy that the env has forked
        return IN_MESSAGE, channel.failure(error)


_DONE = DONE, None
