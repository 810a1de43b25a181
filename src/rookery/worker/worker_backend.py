"""WorkerBackend: envs in a worker, which is replaced when it fails if the policy says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.resources import ProcessUse
from rookery.common.seeding import remember_seeds
from rookery.env.seam import Description
from rookery.errors import (
    EnvFailed,
    RookeryError,
    UsageError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from rookery.shared import SharedBlock
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.row_buffer import RowExtras, RowShape
from rookery.shared.row_reader import RowReader
from rookery.worker.channel import TornError
from rookery.worker.failures import Failure
from rookery.worker.fault_policy import FaultPolicy, RestartCause
from rookery.worker.orders import IN_MESSAGE, RESET, STEP, Order, Orders, command_of
from rookery.worker.protocol import (
    ADOPT_LARGER_ROWS,
    LEND,
    PREPARE_RESET,
    Assignment,
    NotFinishedError,
    Worker,
)
from rookery.worker.recovery import Recovery
from rookery.worker.reports import Reports, raise_failure
from rookery.worker.supervisor import Supervisor
from rookery.worker.watch import Awaited

_LOOK_S = 0.1  # how soon a worker that has ended is noticed while others answer
_IN_MESSAGE = bytes([IN_MESSAGE])


class WorkerBackend:
    """Some consecutive envs of a vector env that live in one worker at a time.

    What a vector env asks of it is documented with :class:`rookery.vector.backend.Backend`. The
    worker is kept by a :class:`~rookery.worker.supervisor.Supervisor`; what becomes of its envs
    when it fails is up to :class:`~rookery.worker.recovery.Recovery`.

    Args:
        start: starts a worker that builds the envs; is given what the worker's channel is to call
            while a message is waited for.
        env_ids: the indices of its envs in the vector env.
        env_name: what to call them in messages.
        policy: deadlines, restarts, memory.

    Attributes:
        env_ids: as given.
        failures: what went wrong in answers that have come, by env id; whoever raises takes it out.
        reader: reads what its envs write, and is told news; None where nobody does.
    """

    steps_in_caller = False

    def __init__(
        self, start: Callable[..., Worker], env_ids: range, env_name: str, policy: FaultPolicy
    ) -> None:
        self.env_ids = env_ids
        self.failures: dict[int, RookeryError] = {}
        self.reader: RowReader | None = None
        self.has_told = False
        self._restarts = policy.restarts
        self._watches_memory = policy.max_worker_rss_mb is not None
        self.is_replaceable = policy.restarts or self._watches_memory
        self._told: dict[int, int] = {}  # by env, the number of the last message taken
        self._call: int | None = None  # number of the request under way
        self._setting: tuple[str, Any] | None = None  # of which attribute it is, and its payload
        self._looked = 0.0
        self._all_done = bytes(len(env_ids))
        self._reports = Reports(env_ids, env_name)
        self._supervisor = Supervisor(start, policy, self._reports)

    @property
    def worker(self) -> Worker:
        """The present worker."""
        return self._supervisor.worker

    @property
    def pid(self) -> int:
        """The process id of the present worker."""
        return self.worker.pid

    @property
    def busy_s(self) -> float:
        """Seconds that all its workers have spent stepping."""
        return self._supervisor.busy_s

    @property
    def steps_made(self) -> int:
        """Steps of all its envs, by all its workers."""
        return int(self._part.progress[1])

    @property
    def restarts(self) -> int:
        """How often its worker was replaced."""
        return self._supervisor.attempt

    @property
    def causes(self) -> tuple[RestartCause, ...]:
        """Why it was replaced, the latest times."""
        return tuple(self._supervisor.causes)

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """How an env began with the present worker; see :meth:`Reports.since_restart`."""
        return self._reports.since_restart(env_id)

    def process_use(self, looks: bool) -> ProcessUse:
        """What its process uses; nothing is known of a thread's share."""
        return self.worker.use.look() if looks else self.worker.use.last()

    @property
    def node(self) -> str | None:
        """The machine on which the present worker is; None is this one."""
        return self.worker.node

    def describe(self) -> Description:
        """Wait until the envs are built, and say what they are; a fault here is raised."""
        return self._supervisor.describe()

    def assign(
        self, assignment: Assignment, board: Any, arrays: BatchArrays, orders: Orders
    ) -> None:
        """Give it its part of the arrays and of the orders."""
        self._orders = orders
        self._part = part = orders.part(self.env_ids, assignment.index)
        self._reports.attach(part, arrays)
        self._reports.resets_at_ends = assignment.autoreset_mode is AutoresetMode.SAME_STEP
        self._recovery = Recovery(
            self._supervisor,
            self._reports,
            self.failures,
            part,
            orders,
            arrays,
            assignment.autoreset_mode,
        )
        self._supervisor.assign(assignment, board, part, orders)

    # ---------------------------------------------------------------- orders

    def begin_step(self, buffer: int, number: int) -> None:
        """What :meth:`begin` does for a step of all envs."""
        supervisor = self._supervisor
        if self._restarts or self._recovery.lost or not supervisor.is_up or supervisor.prepared:
            self.begin(Order(STEP, buffer, number))
            return
        supervisor.command = "step"
        self._part.ask_all(STEP, buffer, number)
        supervisor.worker.bells.go.ring()

    def begin(self, order: Order) -> None:
        """Have envs carry out an order; giving it twice is giving it once. Raises nothing."""
        supervisor = self._supervisor
        supervisor.command = command_of(order.kind)
        if supervisor.prepared and not order.kind & RESET:
            supervisor.prepared = {}
        if self._restarts or self._recovery.lost or not supervisor.is_up:
            self._recovery.begin(order)
            return
        self._part.ask(order)
        supervisor.worker.bells.go.ring()

    def poll(self, deadline: float | None = None) -> None:
        """Take in what has come; what went wrong lies in ``failures``."""
        self._survives(self._take_in, deadline)
        self._recovery.finish_closing()

    def _take_in(self) -> None:
        self._recovery.go_on()
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()
        now = time.perf_counter()
        if now - self._looked > _LOOK_S and not self._supervisor.is_ended:
            self._looked = now
            self._supervisor.look()

    @property
    def needs_poll(self) -> bool:
        """Whether answers are not complete before ``poll`` was called."""
        return bool(self._recovery.closing)

    def finish(self, deadline: float | None = None) -> bool:
        """Wait until all of its envs have answered; whether anything lies in ``failures``."""
        part, supervisor = self._part, self._supervisor
        if self._recovery.is_unfinished:
            self._survives(self._recovery.go_on, deadline)
        if not part.is_busy():
            supervisor.worker.bells.done.take_ring()  # or unheard rings would add up
        while part.is_busy():
            try:
                done = supervisor.worker.bells.done
                if not done.wait(self._keep_waiting, deadline) and part.is_busy():
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
        if self._recovery.closing or self._watches_memory:
            self._recovery.finish_closing()
            self._recovery.recycle_if_large()
        return bool(self.failures)

    def forget(self) -> None:
        """Drop everything that has come, and that was not asked for: nobody is going to."""
        if self.is_torn:
            self._fail(self._supervisor.died(TornError()))
        self.failures.clear()
        if self._supervisor.is_up:
            self._supervisor.messages.clear()
        self._call = None

    @property
    def is_torn(self) -> bool:
        """Whether an interruption has left something that only a reset can mend."""
        return self._supervisor.is_up and self.worker.channel.is_torn

    def check(self) -> None:
        """Raise what keeps the worker from ever answering, if anything does."""
        self._supervisor.check()

    def _keep_waiting(self) -> bool:
        if not self._part.is_busy():
            return False
        self._look_after_messages()
        self.worker.bells.go.ring_again()  # should an interruption have lost it
        return True

    def _look_after_messages(self) -> None:
        """Look after the worker, which does not go on before a large message of its was read."""
        self._supervisor.look()
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()

    def _survives(self, read: Callable[[], None], deadline: float | None) -> bool:
        """Do what reads messages, within a deadline; False if the worker failed meanwhile."""
        self._supervisor.deadline = deadline
        try:
            read()
        except WorkerError as error:
            self._fail(error, _closed_by(error))
            return False
        finally:
            self._supervisor.deadline = None
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
            content = self._message_of_order(env_id)
            if isinstance(content, RowExtras):
                if self.reader is not None:
                    self.reader.take_extras(content)
            else:
                error = content.error() if isinstance(content, Failure) else content
                failed: Sequence[int] = (env_id,)
                if isinstance(error, EnvFailed):
                    failed = error.env_ids
                    if self._restarts:
                        raise error  # all envs that were asked with it are closed
                self.failures.update(dict.fromkeys(failed, error))
            same = ((part.answered == number) & (part.status == IN_MESSAGE)).nonzero()[0].tolist()
            self._told.update((first_id + i, number) for i in same)
            self._supervisor.messages.pop(number, None)

    def _message_of_order(self, env_id: int) -> Any:
        """The message of an order that an env has carried out, within the order's time."""
        supervisor = self._supervisor
        supervisor.awaited = awaited = Awaited(env_id, *self._part.last_order(env_id))
        try:
            return supervisor.message(awaited.number)
        finally:
            supervisor.awaited = None

    def _fail(self, error: WorkerError, failed: Sequence[int] = ()) -> None:
        """Take in that the worker failed, and say so to those whose order it has not answered.

        Args:
            error: what happened.
            failed: envs that were carrying out an order and failed, and may have answered.
        """
        self._recovery.fail(error, [*self._untold(), *failed])

    def _untold(self) -> list[int]:
        """Envs that have answered, but whose message did not come, or one that explains theirs."""
        part, orders, untold = self._part, self._orders, []
        for place in (part.asked == part.answered).nonzero()[0].tolist():
            env_id, number = self.env_ids[place], part.answered[place]
            if number in (orders.received[env_id], self._told.get(env_id)):
                continue
            is_known = self.reader is None or self.reader.knows(env_id, int(part.buffer[place]))
            if part.status[place] == IN_MESSAGE or not is_known:
                untold.append(env_id)
        return untold

    # ---------------------------------------------------------------- requests

    def request(self, method: str, *args: Any) -> tuple[str, Any]:
        """A call of a method of its batch, ready to be sent."""
        request = self._supervisor.request(method, *args)
        self._setting = (args[0], request[1]) if method == "set_attr" else None
        return request

    def begin_call(self, request: tuple[str, Any]) -> None:
        """Have it do what was requested; where nobody is left to do it, a WorkerError is raised."""
        self._recovery.go_on()
        supervisor = self._supervisor
        supervisor.command, payload = request
        if supervisor.is_ended:
            raise self._recovery.gone(self.env_ids[0])
        try:
            if supervisor.is_starting:
                supervisor.renew()
        except WorkerError as error:
            self._recovery.shut_out(error, ())
            raise
        number = self._orders.next_number()
        try:
            if not self.worker.is_alive():
                raise supervisor.died()
            supervisor.send(number, payload)
        except (WorkerDied, WorkerTimeout) as error:
            self._fail(error)
            raise
        self._call = number
        supervisor.wake()

    def finish_call(self, deadline: float | None = None) -> Any:
        """Wait for what was requested, and return its result; a failure is raised."""
        if self._call is None:
            raise UsageError("The call was cut short by an interruption; make it again")
        supervisor, number = self._supervisor, self._call
        supervisor.deadline = deadline
        try:
            content = supervisor.message(number)
        except WorkerError as error:
            self._call = None
            if isinstance(error, (WorkerDied, WorkerTimeout)):
                self._fail(error)
            raise
        finally:
            supervisor.deadline = None
        self._call = None
        supervisor.messages.pop(number, None)
        raise_failure(content)
        if self._setting is not None:  # what an env refused would keep every new worker from it
            name, payload = self._setting
            supervisor.attributes[name] = payload
        return content

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset, for messages and for a worker that replaces this one."""
        remember_seeds(self._reports.seeds, seeds, mask)

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """A request that says, by env, seed and options of the reset that will be ordered."""
        request = self.request(PREPARE_RESET, prepared)
        self._supervisor.prepared = prepared
        return request

    def tell_reset(self, request: tuple[str, Any]) -> None:
        """Have the worker know what was prepared; one that will take its place is told later."""
        if not self._supervisor.is_up:
            return
        try:
            self._call_for("reset", request)
        except WorkerError:
            if not self._supervisor.is_starting:
                raise

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Have it go on with the larger rows, as any worker to come."""
        supervisor = self._supervisor
        if not supervisor.is_up:
            return
        try:
            self._call_for(
                "step", self.request(ADOPT_LARGER_ROWS, shape), supervisor.send_larger_rows
            )
        except WorkerError as error:
            if supervisor.is_up:
                self._fail(error)
            if supervisor.is_ended:
                self._recovery.unraised = error

    def _call_for(
        self, command: str, request: tuple[str, Any], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Make a request that a step or a reset needs first, within the time that these have.

        Args:
            command: "step" or "reset".
            request: what to ask.
            meanwhile: called once that is asked.
        """
        supervisor = self._supervisor
        supervisor.awaited = Awaited(self.env_ids[0], command, self._orders.next_number())
        try:
            self.begin_call((command, request[1]))
            meanwhile()
            self.finish_call()
        finally:
            supervisor.awaited = None

    # ---------------------------------------------------------------- for who acts in the worker

    def lend(self, block: SharedBlock) -> None:
        """Give it access to a block; what is installed afterwards finds its memory there."""
        self.begin_call(self.request(LEND))
        self._supervisor.send_block(block)
        self.finish_call()

    def find_actions(self, last_action: Callable[[int], Any]) -> None:
        """Say where actions are that somebody in the worker decides on, for messages.

        Args:
            last_action: ``env id -> action`` of its latest step.
        """
        self._reports.last_action = last_action

    def replace_after(self, error: WorkerError) -> None:
        """Have a worker that failed at a request replaced, unless that was done already.

        The new one starts in the background. It is brought up to date by the next request, and has
        nothing that was lent to the other one, or installed there.

        Args:
            error: what happened.

        Raises:
            WorkerError: that error, where no restart is left.
        """
        self._call = None
        if self._supervisor.is_up:
            self._fail(error)  # of no order: whoever acts in the worker closes what was cut short
        if self._supervisor.is_ended:
            raise error

    def replace_if_large(self) -> bool:
        """Replace a worker above ``max_worker_rss_mb``; whether it was.

        To be called between requests, when an episode of its envs has ended.
        """
        return self._watches_memory and self._recovery.recycle_if_large(True)

    @property
    def message_pipe(self) -> Any:
        """Can be read once a message has come; for waiting, not for reading. Processes only."""
        return self.worker.channel.pipe  # type: ignore[attr-defined]

    def call_between_waits(self, function: Callable[[], None]) -> None:
        """Have something called ten times a second while this worker is waited for.

        Args:
            function: what it raises ends the wait, which can be taken up again.
        """
        self._supervisor.between_waits = function

    # ---------------------------------------------------------------- the end

    def begin_close(self, deadline: float) -> bool:
        """Have it close its envs; False if there is nobody to do it, or nobody who listens."""
        supervisor = self._supervisor
        if not supervisor.is_up:
            return False
        supervisor.deadline = deadline
        try:
            self.begin_call(self.request("close"))
        except (RookeryError, NotFinishedError):  # it has died already, or reads no more
            return False
        finally:
            supervisor.deadline = None
        return True

    def stop(self, deadline: float) -> None:
        """End the worker by ``deadline`` and give back all it held."""
        self.worker.stop(deadline)


def assign_all(
    backends: Sequence[WorkerBackend],
    spaces: BatchSpaces,
    autoreset_mode: AutoresetMode,
    board: Any,
    arrays: BatchArrays,
    orders: Orders,
) -> None:
    """Give the workers of a vector env their parts.

    Args:
        backends: all that have workers.
        spaces: of the envs.
        autoreset_mode: what happens when an episode ends.
        board: what the workers are given.
        arrays: of the envs.
        orders: to the envs.
    """
    for index, backend in enumerate(backends):
        assignment = Assignment(spaces, autoreset_mode, len(backends), index, backend.env_ids)
        backend.assign(assignment, board, arrays, orders)


def _closed_by(error: WorkerError) -> Sequence[int]:
    """Envs whose order an error has ended, whether or not they have answered."""
    return error.env_ids if isinstance(error, (EnvFailed, WorkerTimeout)) else ()
