"""Lifecycle: one worker at a time for some envs: started, watched, and replaced when it fails.

A :class:`Lifecycle` starts a worker, sends messages to it and receives its answers. While it waits
for the worker it checks ten times a second whether the worker has exited or missed a deadline; both
are a WorkerError. :meth:`Lifecycle.fail` handles such an error: it replaces the worker if the
FaultPolicy allows that, and otherwise leaves the envs without a worker until they are reset.

An exception (a Ctrl-C) can interrupt every line. What was begun is noted first and repeated by
:meth:`Lifecycle.resume`; repeating it has no further effect.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from rookery.common.seeding import derived_seed
from rookery.env.batch import IDLE
from rookery.env.seam import Description
from rookery.errors import RookeryError, WorkerDied, WorkerError
from rookery.shared import SharedBlock
from rookery.worker.channel import TornError
from rookery.worker.failures import Failure, argument_error
from rookery.worker.fault_policy import (
    Awaited,
    Deadlines,
    FaultPolicy,
    MemoryWatch,
    RestartBudget,
    RestartCause,
)
from rookery.worker.lost_envs import LostEnvs
from rookery.worker.orders import RESET, Order, OrderPart, Orders, command_of
from rookery.worker.pipes import ChannelClosedError
from rookery.worker.protocol import Assignment, NotFinishedError, Worker
from rookery.worker.reports import Reports, raise_failure

_T = TypeVar("_T")
_MOST_CAUSES = 100  # a run of weeks need not remember all of them


class Lifecycle:
    """The workers of some envs, one after the other, and the messages to and from them.

    Args:
        start: starts a worker that builds the envs. Its argument is called while the worker's
            channel waits for a message.
        policy: deadlines and restarts.
        reports: creates errors about the worker.
        failures: env id -> error that the caller will raise; errors of lost envs are added here.

    Attributes:
        worker: the present worker.
        is_up: whether the worker can carry out orders.
        is_ended: whether the envs have no worker, not even one that is starting.
        is_unfinished: whether an interruption or a deadline has left a failure half handled.
        attempt: number of times that the worker was replaced.
        causes: why it was replaced, at most the last 100 times.
    """

    def __init__(
        self,
        start: Callable[..., Worker],
        policy: FaultPolicy,
        reports: Reports,
        failures: dict[int, RookeryError],
    ) -> None:
        self.is_up = self.is_ended = self.is_unfinished = False
        self.attempt = 0
        self.causes: deque[RestartCause] = deque(maxlen=_MOST_CAUSES)
        self._start, self._reports, self._failures = start, reports, failures
        self._budget, self._deadlines = RestartBudget(policy), Deadlines(policy)
        self._memory = MemoryWatch(policy.max_worker_rss_mb)
        self._between_waits: Callable[[], None] = lambda: None
        self._deadline: float | None = None  # perf_counter time that ends a wait for a message
        self._request: Awaited | None = None  # the request that has not been answered
        self._awaited: Awaited | None = None  # the order whose message is waited for
        self._messages: dict[int, Any] = {}  # received and not dropped, by number
        self._first_requests: dict[Any, Any] = {}  # see keep_for_new_workers
        self._busy_s_before = 0.0
        self._failure: WorkerError | None = None  # the one that is being handled
        self._concerned: Sequence[int] = ()  # envs whose order the last failure has ended
        self._ended_by: RestartCause | None = None  # why there is no worker
        self._deferred: WorkerError | None = None  # raised by the next step
        self._begin()

    # ---------------------------------------------------------------- start and end of a worker

    def _begin(self) -> None:
        """Start a worker in the background."""
        self._deadlines.begin_make()
        self.worker = self._start(self._check_while_waiting)
        with suppress(ChannelClosedError, TornError):  # the wait for it reports why it ended
            self.worker.greet()
        self._is_assigned = self.is_ended = False

    def describe(self) -> Description:
        """Wait until the envs are built, and return their description.

        Raises:
            EnvFailed: if an env could not be built.
            WorkerDied, WorkerTimeout: if the worker exited, or took too long.
        """
        answer = self.message(0)
        self.worker.has_built()
        if isinstance(answer, Failure) and answer.is_nameless:
            raise self._reports.not_built(answer)
        raise_failure(answer)
        assert isinstance(answer, Description)
        return answer

    def assign(
        self,
        assignment: Assignment,
        shared: Any,
        part: OrderPart,
        orders: Orders,
        lost_envs: LostEnvs,
    ) -> None:
        """Give the first worker its part of the arrays and orders, and keep them for later ones."""
        self._assignment, self._shared = assignment, shared
        self._part, self._orders, self._lost_envs = part, orders, lost_envs
        self._hand_over(assignment)
        self.is_up = True

    def _hand_over(self, assignment: Assignment) -> None:
        self._deadlines.begin_make()  # what follows has as much time again
        self._is_assigned = True
        with self._closed_means_died():
            self.worker.assign(assignment, self._shared)
        self._messages.clear()

    def restart(self, cause: RestartCause | None = None) -> None:
        """Replace the worker by one that starts in the background.

        Args:
            cause: why; None if the cause is noted already, or was an interruption.
        """
        self.attempt += 1
        if cause is not None:
            self.causes.append(cause)
        self._end()
        self._begin()

    def _end(self) -> None:
        """End the worker, and write into shared memory that it is idle."""
        self.worker.kill()
        self.is_up, self.is_ended = False, True
        self._memory.forget()
        self._messages.clear()
        self._request = None
        part = self._part
        self._busy_s_before += float(part.busy_s[0])
        part.busy_s[0] = 0.0
        part.requests[0] = 0
        part.progress[0] = IDLE  # the next worker continues the counts beside it

    def renew(self) -> None:
        """Wait for a worker that starts in the background, and bring it up to date.

        Raises:
            WorkerError: if it fails, and no restart is left.
        """
        while not self.is_up:
            try:
                if self._is_assigned:  # an interruption came before it was brought up to date
                    self.restart()
                self.describe()
                seeds = tuple(derived_seed(seed, self.attempt) for seed in self._reports.seeds)
                requests = list(self._first_requests.values())
                self._reports.begin_anew(seeds)
                self._hand_over(
                    replace(self._assignment, replaces=seeds, first_requests=len(requests))
                )
                for payload in requests:
                    self._have(payload)
                self.is_up = True
            except WorkerError as error:
                self._budget.spend(error)
                self.restart(RestartCause(type(error).__name__, tuple(self._reports.env_ids)))
        self.worker.events.go.set_if_clear()

    def _have(self, payload: Any) -> None:
        """Send a request to a worker that is not up yet, and wait for its answer."""
        number = self._orders.next_number()
        self._send(number, payload)
        raise_failure(self.message(number))

    def keep_for_new_workers(self, key: Any, payload: Any) -> None:
        """Send a request to each new worker, which answers it before its first order.

        Args:
            key: what the request sets. A later request with the same key replaces it.
            payload: the request, as :meth:`request` returned it.
        """
        self._first_requests[key] = payload

    @property
    def is_starting(self) -> bool:
        """True if a worker is starting in the background."""
        return not self.is_up and not self.is_ended

    @property
    def busy_s(self) -> float:
        """Seconds that all workers have spent stepping."""
        return self._busy_s_before + float(self._part.busy_s[0])

    # ---------------------------------------------------------------- messages

    def request(self, method: str, *args: Any) -> tuple[str, Any]:
        """Return a call of a method of the worker's batch, ready to be sent.

        Raises:
            PicklingError: if an argument cannot be pickled.
        """
        try:
            payload = self.worker.channel.encode((method, args))
        except Exception as error:
            raise argument_error(method, args, error) from error
        return method, payload

    def begin_request(self, command: str, payload: Any) -> int:
        """Send a request to the worker, which is started first if it was lost.

        Args:
            command: name of the request in errors; "step" or "reset" have their deadlines.
            payload: the request.

        Returns:
            The number of the answer, for :meth:`message`.

        Raises:
            WorkerError: if the envs have no worker (``is_up`` is False then), or if it fails.
        """
        self.resume()
        first_id = self._part.env_ids.start
        if self.is_ended:
            raise self._gone(first_id, command)
        try:
            if self.is_starting:
                self.renew()
        except WorkerError as error:
            self._shut_out(error, ())
            raise
        number = self._orders.next_number()
        self._request = Awaited(first_id, command, number)
        if not self.worker.is_alive():
            raise self.died()
        self._send(number, payload)
        return number

    def _send(self, number: int, payload: Any) -> None:
        """Send a request and wake the worker for it."""
        with self._closed_means_died():
            self.worker.channel.send(number, payload, self._wake)
        self._wake()

    def _wake(self) -> None:
        self._part.requests[0] += 1
        self.worker.events.go.set()

    def send_block(self, block: SharedBlock) -> None:
        """Give the worker access to a block."""
        with self._closed_means_died():
            self.worker.send_block(block)

    def send_larger_rows(self) -> None:
        """Give the worker access to the larger row buffer."""
        with self._closed_means_died():
            self._shared.send_larger_rows(self.worker.channel)

    def message(self, number: int, order: Awaited | None = None) -> Any:
        """Wait for the message with a number, and return its content.

        The message is kept until it is dropped, so an interruption loses nothing.

        Args:
            number: of the request or order that it answers.
            order: the order, if it is one: the message is late if the order is.
        """
        self._awaited = order
        try:
            with self._closed_means_died():
                while number not in self._messages:
                    self.worker.channel.receive_into(self._messages)
            return self._decoded(number)
        finally:
            self._awaited = None

    def _decoded(self, number: int) -> Any:
        try:
            return self.worker.channel.decode(self._messages[number])
        except Exception as error:  # what an env returned may refuse to be unpickled
            raise self._reports.unreadable(self._doing, error) from error

    def drop_message(self, number: int) -> None:
        """Drop a message after use. If it answers a request, the request has ended."""
        self._messages.pop(number, None)
        if self._request is not None and self._request.number == number:
            self._request = None

    def forget(self) -> None:
        """Drop all messages, and the pending request."""
        self._messages.clear()
        self._request = None

    @contextmanager
    def _closed_means_died(self) -> Iterator[None]:
        try:
            yield
        except (ChannelClosedError, TornError) as error:
            raise self.died(error) from error

    @property
    def is_torn(self) -> bool:
        """True if an interruption has cut a message short, which only a new worker repairs."""
        return self.is_up and self.worker.channel.is_torn

    # ---------------------------------------------------------------- watching the worker

    def within(self, deadline: float | None, function: Callable[..., _T], *args: Any) -> _T:
        """Call a function that waits for messages until a ``time.perf_counter()`` time at most.

        Raises:
            NotFinishedError: if the time passed first.
        """
        self._deadline = deadline
        try:
            return function(*args)
        finally:
            self._deadline = None

    def call_between_waits(self, function: Callable[[], None]) -> None:
        """Call a function ten times a second while the worker is waited for.

        An exception of the function ends the wait, which can be repeated.
        """
        self._between_waits = function

    def look(self) -> None:
        """Check the worker, ten times a second during a wait; see :meth:`check`."""
        self._between_waits()
        self.worker.use.sample()
        self.check()

    def check(self) -> None:
        """Raise a WorkerError if the worker has exited or missed a deadline."""
        if not self.worker.is_alive():
            raise self.died()
        if self.is_up:
            late = self._deadlines.late(self._part.progress, self._pending())
        else:
            late = self._deadlines.late_make(self._reports.env_ids[0])
        if late is not None:
            error = self._reports.timed_out(self.worker, *late)
            self.worker.kill()  # it may have been woken, and must not answer after all
            raise error

    def _check_while_waiting(self) -> None:
        """Check the worker and the deadline of the wait. The channel calls this while it waits."""
        self.look()
        if self._deadline is not None and time.perf_counter() >= self._deadline:
            raise NotFinishedError

    def _pending(self) -> Awaited | None:
        """Return what the worker should answer next, or None if it has answered everything."""
        if self._awaited is not None:
            return self._awaited
        request, part = self._request, self._part
        if request is not None and request.number > int(part.asked.max()):
            return request
        busy = part.busy_ids()
        return Awaited(busy[0], *part.last_order(busy[0])) if busy else None

    def died(self, error: BaseException | None = None) -> WorkerDied:
        """Return the error that says how the worker has exited, and during what."""
        return self._reports.died(self.worker, self._doing, error)

    @property
    def _doing(self) -> str:
        """The command that is pending, or else the last order, for errors."""
        if not self.is_up:
            return "make"
        pending = self._pending()
        if pending is not None:
            return pending.command
        return command_of(int(self._part.kind[self._part.asked.argmax()]))

    # ---------------------------------------------------------------- when the worker has failed

    def fail(self, error: WorkerError, failed: Sequence[int] = ()) -> None:
        """Replace a worker that has failed, or continue without one if that is not allowed.

        Args:
            error: what happened.
            failed: envs that have failed although they have answered. All busy envs have failed,
                too. The other envs report the failure with their next step.
        """
        self._concerned = sorted({*self._part.busy_ids(), *failed})
        self._failure, self.is_unfinished = error, True
        try:
            self._budget.spend(error)
            self._replace(str(error), self._concerned, self._cause(error))
        except WorkerError as final:
            self._shut_out(final, self._concerned)
        self._failure = None
        self.resume()

    def defer(self, error: WorkerError) -> None:
        """Keep an error that has left the envs without a worker. The next step raises it."""
        if self.is_ended:
            self._deferred = error

    def resume(self) -> None:
        """Finish handling a failure. If an interruption came first, handle all of it again."""
        if self._failure is not None:
            self.fail(self._failure, self._concerned)  # this costs one more restart
            return
        if self.is_starting and self._part.is_busy():  # the new worker has envs to reset
            try:
                self.renew()
            except WorkerError as final:
                self._shut_out(final, self._concerned)
        self.is_unfinished = False

    def _shut_out(self, error: WorkerError, concerned: Sequence[int]) -> None:
        """Continue without a worker. The envs are lost until they are reset.

        Args:
            error: why.
            concerned: envs that fail with this error.
        """
        self._failure, self._concerned, self.is_unfinished = error, concerned, True
        self._end()
        self._ended_by = self._cause(error)
        self._lost_envs.lose(self._part.env_ids, error)
        self._failures.update(dict.fromkeys(concerned, error))
        self._part.answer_for_lost(concerned)
        self._failure, self.is_unfinished = None, False

    def _cause(self, error: WorkerError) -> RestartCause:
        env_ids = error.env_ids or self._part.env_ids
        return RestartCause(type(error).__name__, tuple(env_ids))

    def _replace(self, cause: str, concerned: Sequence[int], noted: RestartCause) -> None:
        """Replace the worker and close the steps of the envs concerned."""
        env_ids = self._part.env_ids
        fault = {"cause": cause, "env_ids": tuple(env_ids), "attempt": self.attempt + 1}
        self._lost_envs.lose([i for i in env_ids if i not in concerned], fault)
        self.restart(noted)
        self._lost_envs.cut_short(concerned, fault)

    def recycle_if_large(self, has_ended: bool | None = None) -> bool:
        """Replace a worker above ``max_worker_rss_mb``, once an episode of its envs has ended.

        Args:
            has_ended: whether an episode has ended. None looks at the last step of each env.

        Returns:
            Whether the worker was replaced.
        """
        self._memory.look(self.worker)
        complaint = self._memory.complaint
        if not complaint or not (self._lost_envs.any_ended() if has_ended is None else has_ended):
            return False
        too_large = RestartCause("max_worker_rss_mb", tuple(self._part.env_ids))
        self._replace(complaint, (), too_large)
        return True

    def _gone(self, env_id: int, command: str) -> WorkerDied:
        return self._reports.gone(env_id, command, self._lost_envs.lost.get(env_id))

    # ---------------------------------------------------------------- orders to lost envs

    def begin(self, order: Order) -> None:
        """Give an order to envs that may be lost. Raises nothing; failures are kept for later."""
        self.resume()
        lost_envs = self._lost_envs
        env_ids = self._part.env_ids if order.env_ids is None else order.env_ids
        chosen = [int(i) for i in env_ids]
        lost_envs.note(chosen, order)
        not_stepped = lost_envs.not_stepped_by(order, chosen)
        try:
            if self.is_ended and order.kind & RESET:
                self._deferred = None
                self.restart(self._ended_by)
            if self.is_starting:
                self.renew()
        except WorkerError as error:
            self._part.ask(order)
            self._shut_out(error, chosen)
            return
        if not_stepped:
            self._fail_lost(not_stepped, order)
            lost_envs.give(order, chosen, not_stepped, self.is_up)
        else:
            self._part.ask(order)
        self._deferred = None
        lost_envs.note_given(chosen, order)
        self.worker.events.go.set_if_clear()

    def _fail_lost(self, not_stepped: dict[int, Any], order: Order) -> None:
        """Add the errors of envs that have no worker to the failures."""
        command = command_of(order.kind)
        for env_id, why in not_stepped.items():
            if not isinstance(why, dict):
                self._failures[env_id] = self._deferred or self._gone(env_id, command)
