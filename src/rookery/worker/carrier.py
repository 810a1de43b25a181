"""WorkerCarrier: envs in a worker, which is replaced when it fails if the policy says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rookery.env.arrays import BatchArrays
from rookery.env.batch import IDLE
from rookery.env.description import Description
from rookery.env.failure import which_envs
from rookery.env.seeding import remember_seeds
from rookery.env.slab import News, SlabShape
from rookery.errors import (
    EnvFailed,
    PicklingError,
    RookeryError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from rookery.memory import SharedBlock
from rookery.worker.channel import Channel, ChannelClosedError, TornError
from rookery.worker.deadlines import Awaited, Deadlines
from rookery.worker.failure import Failure
from rookery.worker.faults import FaultPolicy
from rookery.worker.loop import Bells
from rookery.worker.orders import IN_MESSAGE, RESET, STEP, Order, Orders
from rookery.worker.protocol import (
    ADOPT_SLAB,
    LEND,
    PREPARE_RESET,
    Assignment,
    NotFinishedError,
)
from rookery.worker.recovery import Recovery
from rookery.worker.upkeep import MemoryWatch, RestartBudget

_LOOK_S = 0.1  # how soon a worker that has ended is noticed while others answer
_IN_MESSAGE = bytes([IN_MESSAGE])


class Worker(Protocol):
    """A thread or process that serves a batch of envs; see :mod:`rookery.worker.loop`."""

    kind: str
    fate: str  # what became of it when it was killed, in words
    pid: int
    bells: Bells

    @property
    def channel(self) -> Channel:
        """To the worker."""

    def greet(self) -> None:
        """Tell it what to build, once it runs."""

    def has_built(self) -> None:
        """Take in that its envs are built."""

    def assign(self, assignment: Assignment, board: Any) -> None:
        """Give it its part of the arrays."""

    def send_block(self, block: SharedBlock) -> None:
        """Give it access to a block."""

    def is_alive(self) -> bool:
        """Whether it runs."""

    def end_in_words(self) -> str:
        """How it has ended."""

    def python_stack(self) -> str:
        """Where it is, for a message."""

    def kill(self) -> None:
        """End it at once."""

    def stop(self, deadline: float) -> None:
        """End it by a ``time.perf_counter()`` time, and give back what it held."""


class WorkerCarrier:
    """Some consecutive envs of a vector env that live in one worker at a time.

    Args:
        start: starts a worker that builds the envs; is given what the worker's channel is to call
            while a message is waited for.
        env_ids: the indices of its envs in the vector env.
        env_name: what to call them in messages.
        policy: deadlines, restarts, memory.

    Attributes:
        env_ids: as given.
        failures: what went wrong in answers that have come, by env id; whoever raises takes it out.
        hear: is told news; set by the vector env.
    """

    steps_in_caller = False

    def __init__(
        self,
        start: Callable[..., Worker],
        env_ids: range,
        env_name: str,
        policy: FaultPolicy,
    ) -> None:
        self.env_ids = env_ids
        self.failures: dict[int, RookeryError] = {}
        self.hear: Callable[[News], None] = lambda news: None
        self._start = start
        self._name = env_name
        self._policy = policy
        self._restarts = policy.restarts
        self._watches_memory = policy.max_worker_rss_mb is not None
        self._deadlines = Deadlines(policy) if policy.has_deadline else None
        self._deadline: float | None = None  # of the wait for a message
        self._awaited: Awaited | None = None  # what that message belongs to, if it may be late
        self._between_waits: Callable[[], None] = lambda: None
        self._last_action: Callable[[int, int], Any] | None = None
        self._command = "make"
        self._messages: dict[int, Any] = {}  # that have come and were not asked for
        self._told: dict[int, int] = {}  # by env, the number of the last message taken
        self._call: tuple[int, str] | None = None  # number and name of the request under way
        self._looked = 0.0
        self._busy_s_before = 0.0
        self._began = time.perf_counter()
        self._steps_together = False  # whether a fault of one env is a fault of all
        self.has_told = False
        self._all_done = bytes(len(env_ids))
        self._has_memory = False  # whether there are arrays yet
        self.worker = start(self._check)
        self._greet()
        self._is_up = True  # whether the worker has what it needs to serve
        self._is_ended = False  # whether there is no worker, until a reset starts one
        self._unraised: WorkerError | None = None  # what ended it before a step, for that step

    @property
    def pid(self) -> int:
        """The process id of the present worker."""
        return self.worker.pid

    @property
    def busy_s(self) -> float:
        """Seconds that all its workers have spent stepping."""
        if not self._has_memory:
            return 0.0
        return self._busy_s_before + float(self._part.busy_s[0])

    def describe(self) -> Description:
        """Wait until the envs are built, and say what they are; a fault here is raised.

        Raises:
            EnvFailed: when one could not be built.
            WorkerDied, WorkerTimeout: when the worker ended, or took too long.
        """
        try:
            _, payload = self.worker.channel.receive()
            answer = self.worker.channel.decode(payload)
        except (ChannelClosedError, TornError) as error:
            raise self._died(error) from error
        self.worker.has_built()
        _raise_failure(answer)
        assert isinstance(answer, Description)
        self._steps_together = answer.steps_together
        return answer

    def assign(
        self, assignment: Assignment, board: Any, arrays: BatchArrays, orders: Orders
    ) -> None:
        """Give it its part of the arrays and of the orders."""
        self._assignment, self._board, self._arrays = assignment, board, arrays
        self._orders = orders
        self._part = orders.part(self.env_ids, assignment.index)
        self._has_memory = True
        self._recovery = Recovery(
            arrays, self._part, assignment.autoreset_mode, self._steps_together
        )
        self._budget = RestartBudget(self._policy)
        self._memory = MemoryWatch(self._policy.max_worker_rss_mb)
        self._attempt = 0
        self._seeds: list[int | None] = [None] * len(self.env_ids)
        self._attributes: dict[str, tuple[Any, ...]] = {}  # what set_attr has set, by name
        self._prepared: dict[int, tuple[int | None, Any]] = {}  # for the reset under way
        self._send_assignment(assignment)

    def _send_assignment(self, assignment: Assignment) -> None:
        try:
            self.worker.assign(assignment, self._board)
        except (ChannelClosedError, TornError) as error:
            raise self._died(error) from error

    # ---------------------------------------------------------------- orders

    def begin_step(self, buffer: int, number: int) -> None:
        """What :meth:`begin` does for a step of all envs."""
        if self._restarts or self._recovery.lost or not self._is_up or self._prepared:
            self.begin(Order(STEP, buffer, number))
            return
        self._command = "step"
        self._part.ask_all(STEP, buffer, number)
        self.worker.bells.go.ring()

    def begin(self, order: Order) -> None:
        """Have envs carry out an order; giving it twice is giving it once. Raises nothing."""
        self._command = _command(order.kind)
        if self._prepared and not order.kind & RESET:
            self._prepared = {}
        if self._restarts or self._recovery.lost or not self._is_up:
            self._begin_with_care(order)
            return
        self._part.ask(order)
        self.worker.bells.go.ring()

    def poll(self, deadline: float | None = None) -> None:
        """Take in what has come; what went wrong lies in ``failures``.

        Raises:
            NotFinishedError: when the deadline passed amid a message.
        """
        self._survives(self._take_in, deadline)
        self._recovery.finish_closing()

    def _take_in(self) -> None:
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()
        now = time.perf_counter()
        if now - self._looked > _LOOK_S and not self._is_ended:
            self._looked = now
            self._look()

    @property
    def needs_poll(self) -> bool:
        """Whether answers are not complete before ``poll`` was called."""
        return self._recovery.has_work

    def finish(self, deadline: float | None = None) -> bool:
        """Wait until all of its envs have answered; whether anything lies in ``failures``.

        Args:
            deadline: a ``time.perf_counter()`` time.

        Raises:
            NotFinishedError: when the deadline passed.
        """
        part = self._part
        if not part.is_busy():
            self.worker.bells.done.take_ring()  # or rings that nobody has waited for would add up
        while part.is_busy():
            try:
                if not self.worker.bells.done.wait(self._keep_waiting, deadline) and part.is_busy():
                    self._look_after_messages()
                    if deadline is not None and time.perf_counter() >= deadline:
                        raise NotFinishedError
            except WorkerError as error:
                self._fail(error, _closed_by(error))
        if part.fence is not None:
            part.fence()
        statuses = part.status.tobytes()
        self.has_told = statuses != self._all_done
        has_messages = self.has_told and _IN_MESSAGE in statuses
        if has_messages and not self._survives(self._take_messages, deadline):
            return self.finish(deadline)  # if the policy has a new worker reset envs
        if self._recovery.closing:
            self._recovery.finish_closing()
        if self._watches_memory:
            self._recycle_if_large()
        return bool(self.failures)

    def forget(self) -> None:
        """Drop everything that has come, and that was not asked for: nobody is going to."""
        if self.is_torn:
            self._fail(self._died(TornError()))
        self.failures.clear()
        self._messages.clear()
        self._call = None

    @property
    def is_torn(self) -> bool:
        """Whether an interruption has left something that only a reset can mend."""
        return self._is_up and self.worker.channel.is_torn

    def _keep_waiting(self) -> bool:
        if not self._part.is_busy():
            return False
        self._look_after_messages()
        self.worker.bells.go.ring_again()  # should an interruption have lost it
        return True

    def _look_after_messages(self) -> None:
        """Look after the worker, which does not go on before a large message of its was read."""
        self._look()
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()

    def _survives(self, read: Callable[[], None], deadline: float | None) -> bool:
        """Do what reads messages, within a deadline; False if the worker failed meanwhile."""
        self._deadline = deadline
        try:
            read()
        except WorkerError as error:
            self._fail(error, _closed_by(error))
            return False
        finally:
            self._deadline = None
        return True

    def _take_messages(self) -> None:
        """Take the messages that belong to answers which have come."""
        part = self._part
        first_id = self.env_ids.start
        # First who has answered: only then is a status that of the last order.
        for place in (part.asked == part.answered).nonzero()[0].tolist():
            if part.fence is not None:
                part.fence()
            number, env_id = int(part.answered[place]), first_id + place
            if part.status[place] != IN_MESSAGE or self._told.get(env_id) == number:
                continue
            content = self._message_of_order(number, env_id)
            if isinstance(content, News):
                self.hear(content)
            else:
                error = content.error() if isinstance(content, Failure) else content
                failed: Sequence[int] = (env_id,)
                if isinstance(error, EnvFailed):
                    failed = error.env_ids
                    if self._policy.restarts:
                        raise error  # all envs that were asked with it are closed
                self.failures.update(dict.fromkeys(failed, error))
            same = ((part.answered == number) & (part.status == IN_MESSAGE)).nonzero()[0].tolist()
            self._told.update((first_id + i, number) for i in same)
            self._messages.pop(number, None)

    def _message_of_order(self, number: int, env_id: int) -> Any:
        """The message of an order that an env has carried out, within the order's time."""
        kind = int(self._part.kind[env_id - self.env_ids.start])
        self._awaited = Awaited(env_id, _command(kind), number)
        try:
            return self._message(number)
        finally:
            self._awaited = None

    def _message(self, number: int) -> Any:
        """The content of the message with this number, waited for."""
        try:
            while number not in self._messages:
                self.worker.channel.receive_into(self._messages)
            payload = self._messages[number]  # kept until it has been made use of
        except (ChannelClosedError, TornError) as error:
            raise self._died(error) from error
        try:
            return self.worker.channel.decode(payload)
        except Exception as error:  # what an env returns may refuse to be unpickled
            raise _unreadable(self._command, self.env_ids, error) from error

    # ---------------------------------------------------------------- requests

    def request(self, method: str, *args: Any) -> tuple[str, Any]:
        """A call of a method of its batch, ready to be sent.

        Raises:
            PicklingError: when an argument cannot travel.
        """
        if method == "set_attr":
            self._attributes[args[0]] = args
        try:
            return method, self.worker.channel.encode((method, args))
        except Exception as error:
            raise PicklingError(
                f"An argument of {method} cannot be sent to a worker: {error}"
            ) from error

    def begin_call(self, request: tuple[str, Any]) -> None:
        """Have it do what was requested.

        Raises:
            WorkerError: when there is nobody to do it.
        """
        self._command, payload = request
        if self._is_ended:
            raise self._gone(self.env_ids[0])
        if not self._is_up:
            self._renew_for_call()
        elif not self.worker.is_alive():
            died = self._died()
            self._fail(died)
            raise died
        number = self._orders.next_number()
        try:
            self.worker.channel.send(number, payload, self._wake)
            self._call = number, self._command
            self._wake()
        except (ChannelClosedError, TornError) as error:
            died = self._died(error)
            self._fail(died)
            raise died from error

    def _renew_for_call(self) -> None:
        try:
            self._renew()
        except WorkerError as error:
            self._shut_out(error, ())
            raise

    def _wake(self) -> None:
        """Have the worker look for requests."""
        self._part.requests[0] += 1
        self.worker.bells.go.ring()

    def finish_call(self, deadline: float | None = None) -> Any:
        """Wait for what was requested, and return its result.

        Raises:
            NotFinishedError: when the deadline, a ``time.perf_counter()`` time, passed.
            EnvFailed, WorkerDied, WorkerTimeout: when it failed.
        """
        if self._call is None:
            raise UsageError("The call was cut short by an interruption; make it again")
        self._deadline, number = deadline, self._call[0]
        try:
            content = self._message(number)
        except NotFinishedError:
            raise
        except WorkerError as error:
            self._call = None
            if isinstance(error, (WorkerDied, WorkerTimeout)):
                self._fail(error)
            raise
        finally:
            self._deadline = None
        self._call = None
        self._messages.pop(number, None)
        _raise_failure(content)
        return content

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """A request that says, by env, seed and options of the reset that will be ordered."""
        request = self.request(PREPARE_RESET, prepared)
        self._prepared = prepared
        return request

    def tell_reset(self, request: tuple[str, Any]) -> None:
        """Have the worker know what was prepared; one that will take its place is told later.

        Raises:
            WorkerDied, WorkerTimeout: when the worker fails meanwhile, and is not to be replaced.
        """
        if not self._is_up:
            return
        try:
            self._call_for("reset", request)
        except WorkerError:
            if not self._is_starting():
                raise

    def _is_starting(self) -> bool:
        """Whether a worker that replaces another still has to be waited for."""
        return not (self._is_up or self._is_ended)

    def _call_for(
        self, command: str, request: tuple[str, Any], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Make a request that a step or a reset needs first, within the time that these have.

        Args:
            command: "step" or "reset".
            request: what to ask.
            meanwhile: called once that is asked.
        """
        self._awaited = Awaited(self.env_ids[0], command, self._orders.next_number())
        try:
            self.begin_call((command, request[1]))
            meanwhile()
            self.finish_call()
        finally:
            self._awaited = None

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset, for messages and for a worker that replaces this one."""
        remember_seeds(self._seeds, seeds, mask)

    def adopt_slab(self, shape: SlabShape) -> None:
        """Have it go on with the board's larger slab, as any worker to come."""
        if not self._is_up:
            return
        try:
            self._call_for("step", self.request(ADOPT_SLAB, shape), self._send_slab)
        except (ChannelClosedError, TornError) as closed:
            error: WorkerError = self._died(closed)
        except WorkerError as failed:
            error = failed
        else:
            return
        if self._is_up:
            self._fail(error)
        if self._is_ended:
            self._unraised = error

    def _send_slab(self) -> None:
        self._board.send_slab(self.worker.channel, self.pid)

    def lend(self, block: SharedBlock) -> None:
        """Give it access to a block; what is installed afterwards finds its memory there."""
        self.begin_call(self.request(LEND))
        try:
            self.worker.send_block(block)
        except (ChannelClosedError, TornError) as error:
            raise self._died(error) from error
        self.finish_call()

    def find_actions(self, last_action: Callable[[int, int], Any]) -> None:
        """Say where actions are that somebody in the worker decides on, for messages.

        Args:
            last_action: ``(steps of the batch, env id) -> action`` of the latest of these steps.
        """
        self._last_action = last_action

    @property
    def message_pipe(self) -> Any:
        """Can be read once a message has come; for waiting, not for reading. Processes only."""
        return self.worker.channel.pipe  # type: ignore[attr-defined]

    def call_between_waits(self, function: Callable[[], None]) -> None:
        """Have something called ten times a second while this worker is waited for.

        Args:
            function: what it raises ends the wait, which can be taken up again.
        """
        self._between_waits = function

    # ---------------------------------------------------------------- the end

    def begin_close(self, deadline: float) -> bool:
        """Have it close its envs; False if there is nobody to do it, or nobody who listens."""
        if not self._is_up or not self._has_memory:
            return False
        self._deadline = deadline
        try:
            self.begin_call(self.request("close"))
        except (RookeryError, NotFinishedError):  # it has died already, or reads no more
            return False
        finally:
            self._deadline = None
        return True

    def stop(self, deadline: float) -> None:
        """End the worker by ``deadline`` and give back all it held."""
        self.worker.stop(deadline)

    # ---------------------------------------------------------------- faults

    def check(self) -> None:
        """Raise what keeps the worker from ever answering, if anything does."""
        if not self.worker.is_alive():
            raise self._died()
        if self._deadlines is None:
            return
        if not self._has_memory or not self._is_up:
            limit_s = self._policy.make_timeout_s
            if limit_s is not None and time.perf_counter() - self._began > limit_s:
                raise self._timed_out(self.env_ids[0], "make", limit_s)
            return
        late = self._deadlines.late(self._part.progress, self._awaited or self._first_busy())
        if late is not None:
            raise self._timed_out(*late)

    def _first_busy(self) -> Awaited | None:
        """The first env that has not answered, if there is one."""
        busy = self._part.busy_ids()
        if not busy:
            return None
        place = busy[0] - self.env_ids.start
        command = _command(int(self._part.kind[place]))
        return Awaited(busy[0], command, int(self._part.asked[place]))

    def _check(self) -> None:
        """What the channel calls while it waits."""
        self._look()
        if self._deadline is not None and time.perf_counter() >= self._deadline:
            raise NotFinishedError

    def _look(self) -> None:
        self._between_waits()
        self.check()

    def _begin_with_care(self, order: Order) -> None:
        """Begin an order where envs may be lost, or will have to be."""
        recovery = self._recovery
        chosen = [int(i) for i in (self.env_ids if order.env_ids is None else order.env_ids)]
        recovery.note(chosen, order)
        resets = bool(order.kind & RESET)
        if not resets:
            self._prepared = {}
        closed = recovery.take_lost(chosen, resets)
        try:
            if self._is_ended and resets:
                self._begin_restart()
            if not self._is_up and not self._is_ended:
                self._renew()
        except WorkerError as error:
            self._part.ask(order)
            self._shut_out(error, chosen)
            return
        if closed:
            self._begin_closing(order, chosen, closed)
        else:
            self._part.ask(order)
        self.worker.bells.go.ring_again()

    def _begin_closing(self, order: Order, chosen: list[int], closed: dict[int, Any]) -> None:
        """Begin a step of which some envs must be told that they were lost."""
        if not self._is_up:
            self._part.ask(order)
            self._part.answer_for_lost(list(closed))
        else:
            number = self._orders.next_number()
            self._part.ask(self._recovery.without(order, chosen, closed))
            self._part.ask(self._recovery.in_place_of_step(order, list(closed), number))
        for env_id, why in closed.items():
            if isinstance(why, dict):
                self._recovery.close_once_answered(env_id, why)
            else:
                self.failures[env_id] = self._unraised or self._gone(env_id)
        self._unraised = None

    def _fail(self, error: WorkerError, failed: Sequence[int] = ()) -> None:
        """Take in that the worker failed: replace it if that is allowed, or say so to its envs.

        Args:
            error: what happened.
            failed: envs that were carrying out an order and failed, and may have answered.
        """
        concerned = sorted({*self._part.busy_ids(), *self._untold(), *failed})
        try:
            if not self._policy.restarts:
                raise error
            self._budget.spend(error)
            self._replace(str(error), concerned)
        except WorkerError as final:
            self._shut_out(final, concerned)

    def _untold(self) -> list[int]:
        """Envs that have answered, but whose message did not come."""
        part, received = self._part, self._orders.received
        waiting = (part.asked == part.answered) & (part.status == IN_MESSAGE)
        ids = [self.env_ids[i] for i in waiting.nonzero()[0].tolist()]
        numbers = self._orders.asked
        return [i for i in ids if numbers[i] not in (received[i], self._told.get(i))]

    def _shut_out(self, error: WorkerError, concerned: Sequence[int]) -> None:
        """Go on without a worker: its envs are lost until they are reset."""
        self._end_worker()
        self._recovery.lose(self.env_ids, error)
        self._part.answer_for_lost(concerned)
        for env_id in concerned:
            self.failures[env_id] = error

    def _replace(self, cause: str, concerned: Sequence[int]) -> None:
        """Replace the worker and close what its envs were doing; the others are told later."""
        self._begin_restart()
        fault = self._fault(cause)
        self._recovery.lose([i for i in self.env_ids if i not in concerned], fault)
        number = self._orders.next_number()
        self._close(self._recovery.cut_short(concerned, number), fault)
        if self._part.is_busy():  # resets, which the new worker makes
            self._renew()

    def _close(self, env_ids: Sequence[int], fault: dict[str, Any]) -> None:
        """Close the steps of some envs, whose worker is gone, as truncated."""
        for env_id in env_ids:
            self._recovery.close_once_answered(env_id, fault)
        if self._recovery.needs_reset:
            self._part.turn_into_resets(env_ids, self._orders.next_number())
        else:
            self._part.answer_for_lost(env_ids)

    def _begin_restart(self) -> None:
        self._attempt += 1
        self._end_worker()
        self._began = time.perf_counter()
        self.worker = self._start(self._check)
        self._is_ended, self._unraised = False, None
        self._greet()

    def _greet(self) -> None:
        try:
            self.worker.greet()
        except (ChannelClosedError, TornError):  # whoever waits for its envs hears why it ended
            return

    def _end_worker(self) -> None:
        """End the worker, and write in its place that it does nothing any more."""
        self.worker.kill()
        self._is_up, self._is_ended = False, True
        self._memory.complaint = ""
        self._messages.clear()
        self._busy_s_before += float(self._part.busy_s[0])
        self._part.busy_s[0] = 0.0
        self._part.requests[0] = 0
        for i in range(len(self._part.progress)):
            self._part.progress[i] = IDLE

    def _renew(self) -> None:
        """Wait for a worker that is starting in the background, and bring it up to date."""
        while not self._is_up:
            try:
                self.describe()
                self._began = time.perf_counter()  # what follows has as much time again
                seeds = self._recovery.seeds_after(self._seeds, self._attempt)
                requests = self._requests_to_repeat()
                self._send_assignment(
                    self._recovery.replacing(self._assignment, seeds, len(requests))
                )
                for method, args in requests:
                    self._have(method, *args)
                self._is_up = True
            except WorkerError as error:
                if not self._policy.restarts:
                    raise
                self._budget.spend(error)
                self._begin_restart()
        self.worker.bells.go.ring_again()

    def _requests_to_repeat(self) -> list[tuple[str, tuple[Any, ...]]]:
        """What a new worker must be told before it carries out an order."""
        requests: list[tuple[str, tuple[Any, ...]]] = [
            ("set_attr", args) for args in self._attributes.values()
        ]
        if self._prepared:
            requests.append((PREPARE_RESET, (self._prepared,)))
        return requests

    def _have(self, method: str, *args: Any) -> None:
        """Have a worker that is not up yet call a method of its batch, and wait for it."""
        _, payload = self.request(method, *args)
        number = self._orders.next_number()
        try:
            self.worker.channel.send(number, payload, self._wake)
            self._wake()
        except (ChannelClosedError, TornError) as error:
            raise self._died(error) from error
        content = self._message(number)
        _raise_failure(content)

    def _fault(self, cause: str) -> dict[str, Any]:
        return {"cause": cause, "env_ids": tuple(self.env_ids), "attempt": self._attempt}

    def _recycle_if_large(self) -> None:
        """Replace a worker that is too large, once an episode of its envs has ended."""
        self._memory.look(self.pid)
        if self._memory.complaint and self._recovery.any_ended():
            cause = self._memory.complaint
            self._begin_restart()
            self._recovery.lose(self.env_ids, self._fault(cause))

    # ---------------------------------------------------------------- in words

    def _gone(self, env_id: int) -> WorkerDied:
        cause = self._recovery.lost.get(env_id)
        reason = str(cause).partition("\n")[0] if cause is not None else "its worker has ended"
        return WorkerDied(
            f"Env {env_id} ({self._name}) was lost with its worker; reset() starts a new one. "
            f"What had happened: {reason}",
            env_ids=(env_id,),
            command=self._command,
        )

    def _died(self, error: BaseException | None = None) -> WorkerDied:
        was_torn = isinstance(error, TornError)
        end = "was ended: a message was cut short by an interruption" if was_torn else ""
        ids = self.env_ids
        which = f"env {ids[0]}" if len(ids) == 1 else f"envs {ids[0]}-{ids[-1]}"
        busy = abs(self._part.progress[0]) - 1 if self._has_memory else -1
        command = self._command if self._is_up else "make"  # of the worker that is to follow
        is_one = busy >= 0 and not self._steps_together
        doing = f"{command} of env {busy}" if is_one else command
        return WorkerDied(
            f"The worker {self.worker.kind} {self.worker.pid} of {which} ({self._name}) "
            f"{end or self.worker.end_in_words()} during {doing}. "
            "What it printed last may say more.",
            env_ids=sorted(ids, key=lambda env_id: env_id != busy),
            command=command,
            **self._circumstances(busy),
        )

    def _timed_out(self, env_id: int, command: str, limit_s: float) -> WorkerTimeout:
        circumstances = self._circumstances(env_id)  # the signal may end what it hangs in
        stack = self.worker.python_stack()
        self.worker.kill()  # it may have been woken, and must not answer after all
        late = tuple(self.env_ids) if self._steps_together else (env_id,)
        return WorkerTimeout(
            f"{which_envs(late)} ({self._name}) did not finish its {command} within {limit_s} s; "
            f"its worker {self.worker.kind} {self.worker.pid} {self.worker.fate}. "
            f"Where it hung:\n{stack}",
            env_ids=late,
            command=command,
            **circumstances,
        )

    def _circumstances(self, env_id: int) -> dict[str, Any]:
        """What an env was doing when its worker could no longer say so itself."""
        if not self._has_memory or env_id < 0:
            return {}
        progress = self._part.progress
        stepping, steps = progress[0] > 0, int(progress[1])
        return {
            "seed": self._seeds[env_id - self.env_ids.start],
            "steps_since_reset": int(steps - self._arrays.reset_at[env_id]),
            "last_action": self._action(steps, env_id) if stepping else None,
        }

    def _action(self, steps: int, env_id: int) -> Any:
        if self._last_action is not None:
            return self._last_action(steps, env_id)
        return next(self._arrays.read_actions(range(env_id, env_id + 1)))


def _closed_by(error: WorkerError) -> Sequence[int]:
    """Envs whose order an error has ended, whether or not they have answered."""
    return error.env_ids if isinstance(error, (EnvFailed, WorkerTimeout)) else ()


def _command(kind: int) -> str:
    return "reset" if kind & RESET else "step"


def _raise_failure(content: Any) -> None:
    if isinstance(content, Failure):
        raise content.error()
    if isinstance(content, RookeryError):
        raise content


def _unreadable(command: str, env_ids: range, error: Exception) -> WorkerError:
    failure = WorkerError(
        f"What {command} of envs {env_ids[0]}-{env_ids[-1]} returned or raised in a worker cannot "
        f"be rebuilt in this process: {type(error).__name__}: {error!s:.500}",
        env_ids=env_ids,
        command=command,
    )
    failure.__cause__ = error
    return failure
