"""Supervisor: keeps one worker for some envs: starts it, talks to it, watches it, replaces it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from rookery.common.seeding import derived_seed
from rookery.env.batch import IDLE
from rookery.env.seam import Description
from rookery.errors import WorkerDied, WorkerError
from rookery.shared import SharedBlock
from rookery.worker.channel import TornError
from rookery.worker.failures import Failure
from rookery.worker.fault_policy import FaultPolicy, RestartCause
from rookery.worker.orders import OrderPart, Orders
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.protocol import PREPARE_RESET, Assignment, NotFinishedError, Worker
from rookery.worker.reports import Reports, raise_failure
from rookery.worker.unsendable import argument_error
from rookery.worker.watch import Awaited, Deadlines, MemoryWatch, RestartBudget

_MOST_CAUSES = 100  # a run that lasts for weeks need not remember them all


class Supervisor:
    """One worker at a time, from its start to its end, and messages to it and from it.

    Args:
        start: starts a worker that builds the envs; is given what the worker's channel is to call
            while a message is waited for.
        policy: deadlines and restarts.
        reports: composes errors about the worker.

    Attributes:
        worker: the present one.
        is_up: whether it has what it needs to serve.
        is_ended: whether there is no worker, until one is started.
        attempt: how often it was replaced.
        command: what it was asked last, for errors.
        deadline: a ``time.perf_counter()`` time that ends a wait for a message; None if none does.
        awaited: what that message belongs to, if it may be late.
        between_waits: called ten times a second while the worker is waited for; what it raises ends
            the wait, which can be taken up again.
        prepared: seeds and options of the reset under way, by env.
        attributes: arguments of the ``set_attr`` that set each attribute last; by name.
        messages: that have come and were not made use of, by number.
        budget: of restarts.
        memory: notices that the worker is too large.
        causes: why it was replaced, the latest times.
    """

    def __init__(self, start: Callable[..., Worker], policy: FaultPolicy, reports: Reports) -> None:
        self.is_up = self.is_ended = False
        self.attempt = 0
        self.command = "make"
        self.deadline: float | None = None
        self.awaited: Awaited | None = None
        self.between_waits: Callable[[], None] = lambda: None
        self.prepared: dict[int, tuple[int | None, Any]] = {}
        self.messages: dict[int, Any] = {}
        self.budget = RestartBudget(policy)
        self.memory = MemoryWatch(policy.max_worker_rss_mb)
        self.causes: deque[RestartCause] = deque(maxlen=_MOST_CAUSES)
        self._start = start
        self._reports = reports
        self._deadlines = Deadlines(policy)
        self.attributes: dict[str, Any] = {}  # by name, the payload of the request that set it
        self._busy_s_before = 0.0
        self._begin()

    # ---------------------------------------------------------------- the life of a worker

    def _begin(self) -> None:
        """Start a worker in the background."""
        self._deadlines.begin_make()
        self.worker = self._start(self._check)
        with suppress(ChannelClosedError, TornError):  # whoever waits for it hears why it ended
            self.worker.greet()
        self._is_assigned = self.is_ended = False

    def describe(self) -> Description:
        """Wait until the envs are built, and say what they are.

        Raises:
            EnvFailed: when one could not be built.
            WorkerDied, WorkerTimeout: when the worker ended, or took too long.
        """
        answer = self.message(0)
        self.worker.has_built()
        if isinstance(answer, Failure) and answer.is_nameless:
            raise self._reports.not_built(answer)
        raise_failure(answer)
        assert isinstance(answer, Description)
        self._reports.steps_together = answer.steps_together
        return answer

    def assign(self, assignment: Assignment, board: Any, part: OrderPart, orders: Orders) -> None:
        """Give the first worker its part of the arrays and of the orders; any other, later on."""
        self._assignment, self._board = assignment, board
        self._part, self._orders = part, orders
        self._hand_over(assignment)
        self.is_up = True

    def _hand_over(self, assignment: Assignment) -> None:
        self._deadlines.begin_make()  # what follows has as much time again
        self._is_assigned = True
        with self._closed_means_died():
            self.worker.assign(assignment, self._board)
        self.messages.clear()

    def restart(self, cause: RestartCause | None = None) -> None:
        """Replace the worker by one that starts in the background.

        Args:
            cause: why; None where that is noted already, or was an interruption.
        """
        self.attempt += 1
        if cause is not None:
            self.causes.append(cause)
        self.end()
        self._begin()

    def end(self) -> None:
        """End the worker, and write in its place that it does nothing any more."""
        self.worker.kill()
        self.is_up, self.is_ended = False, True
        self.memory.complaint = ""
        self.messages.clear()
        part = self._part
        self._busy_s_before += float(part.busy_s[0])
        part.busy_s[0] = 0.0
        part.requests[0] = 0
        part.progress[0] = IDLE  # the next worker counts on

    def renew(self) -> None:
        """Wait for a worker that is starting in the background, and bring it up to date.

        Raises:
            WorkerError: when it fails, and no restart is left.
        """
        while not self.is_up:
            try:
                if self._is_assigned:  # an interruption came before it was brought up to date
                    self.restart()
                self.describe()
                seeds = tuple(derived_seed(seed, self.attempt) for seed in self._reports.seeds)
                requests = list(self.attributes.values())
                if self.prepared:
                    requests.append(self.request(PREPARE_RESET, self.prepared)[1])
                self._reports.begin_anew(seeds)
                self._hand_over(
                    replace(self._assignment, replaces=seeds, first_requests=len(requests))
                )
                for payload in requests:
                    self._have(payload)
                self.is_up = True
            except WorkerError as error:
                self.budget.spend(error)
                self.restart(RestartCause(type(error).__name__, tuple(self._reports.env_ids)))
        self.worker.bells.go.ring_again()

    def _have(self, payload: Any) -> None:
        """Have a worker that is not up yet do what is requested, and wait for it."""
        number = self._orders.next_number()
        self.send(number, payload)
        self.wake()
        raise_failure(self.message(number))

    @property
    def is_starting(self) -> bool:
        """Whether a worker starts in the background, of which nobody knows whether it will do."""
        return not self.is_up and not self.is_ended

    @property
    def busy_s(self) -> float:
        """Seconds that all workers have spent stepping."""
        return self._busy_s_before + float(self._part.busy_s[0])

    # ---------------------------------------------------------------- messages

    def request(self, method: str, *args: Any) -> tuple[str, Any]:
        """A call of a method of the worker's batch, ready to be sent.

        Raises:
            PicklingError: when an argument cannot travel.
        """
        try:
            payload = self.worker.channel.encode((method, args))
        except Exception as error:
            raise argument_error(method, args, error) from error
        return method, payload

    def send(self, number: int, payload: Any) -> None:
        """Send a request; the worker is to be woken for it."""
        with self._closed_means_died():
            self.worker.channel.send(number, payload, self.wake)

    def send_block(self, block: SharedBlock) -> None:
        """Give the worker access to a block."""
        with self._closed_means_died():
            self.worker.send_block(block)

    def send_larger_rows(self) -> None:
        """Give the worker access to the larger rows."""
        with self._closed_means_died():
            self._board.send_larger_rows(self.worker.channel)

    def wake(self) -> None:
        """Have the worker look for requests."""
        self._part.requests[0] += 1
        self.worker.bells.go.ring()

    def message(self, number: int) -> Any:
        """The content of the message with this number, waited for; it stays among ``messages``."""
        with self._closed_means_died():
            while number not in self.messages:
                self.worker.channel.receive_into(self.messages)
        try:
            return self.worker.channel.decode(self.messages[number])
        except Exception as error:  # what an env returns may refuse to be unpickled
            raise self._reports.unreadable(self._doing, error) from error

    @contextmanager
    def _closed_means_died(self) -> Iterator[None]:
        try:
            yield
        except (ChannelClosedError, TornError) as error:
            raise self.died(error) from error

    # ---------------------------------------------------------------- watching

    def check(self) -> None:
        """Raise what keeps the worker from ever answering, if anything does."""
        if not self.worker.is_alive():
            raise self.died()
        if self.is_up:
            late = self._deadlines.late(self._part.progress, self.awaited or self._first_busy())
        else:
            late = self._deadlines.late_make(self._reports.env_ids[0])
        if late is not None:
            error = self._reports.timed_out(self.worker, *late)
            self.worker.kill()  # it may have been woken, and must not answer after all
            raise error

    def _first_busy(self) -> Awaited | None:
        """The order of the first env that has not answered, if there is one."""
        busy = self._part.busy_ids()
        return Awaited(busy[0], *self._part.last_order(busy[0])) if busy else None

    def look(self) -> None:
        """Do what is to be done ten times a second while the worker is waited for."""
        self.between_waits()
        self.worker.use.sample()
        self.check()

    def _check(self) -> None:
        """What the channel calls while it waits."""
        self.look()
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            raise NotFinishedError

    def died(self, error: BaseException | None = None) -> WorkerDied:
        """The error that says how the worker has ended."""
        return self._reports.died(self.worker, self._doing, error)

    @property
    def _doing(self) -> str:
        """What the worker has to do: a command, or to take the place of another first."""
        return self.command if self.is_up else "make"
