"""WorkerBackend: envs in a worker. It gives orders and requests, and takes the answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.resources import ProcessUse
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
from rookery.worker.fault_policy import Awaited, FaultPolicy, RestartCause
from rookery.worker.lifecycle import Lifecycle
from rookery.worker.lost_envs import LostEnvs
from rookery.worker.orders import IN_MESSAGE, STEP, Order, Orders
from rookery.worker.protocol import (
    ADOPT_LARGER_ROWS,
    LEND,
    PREPARE_RESET,
    Assignment,
    NotFinishedError,
    Worker,
)
from rookery.worker.reports import Reports, raise_failure

_LOOK_S = 0.1  # how often the worker is checked while other workers answer
_IN_MESSAGE = bytes([IN_MESSAGE])


class WorkerBackend:
    """Consecutive envs of a vector env, in one worker at a time.

    For the interface, see :class:`rookery.vector.backend.Backend`. A
    :class:`~rookery.worker.lifecycle.Lifecycle` starts, watches and replaces the worker.

    Args:
        start: starts a worker that builds the envs. Its argument is called while the worker's
            channel waits for a message.
        env_ids: the indices of the envs in the vector env.
        env_name: name of the envs in messages.
        policy: deadlines, restarts and memory limit.

    Attributes:
        env_ids: the indices of the envs in the vector env.
        failures: env id -> error of an answer that has come. The caller that raises it removes it.
        reader: reads the rows of the envs and the extras in their messages; None if unused.
    """

    steps_in_caller = False

    def __init__(
        self, start: Callable[..., Worker], env_ids: range, env_name: str, policy: FaultPolicy
    ) -> None:
        self.env_ids = env_ids
        self.failures: dict[int, RookeryError] = {}
        self.reader: RowReader | None = None
        self.has_extras = False
        self._restarts = policy.restarts
        self._watches_memory = policy.max_worker_rss_mb is not None
        self.is_replaceable = policy.restarts
        self._taken: dict[int, int] = {}  # by env, the number of the last message taken
        self._call: int | None = None  # number of the pending request
        self._setting: tuple[Any, Any] | None = None  # attribute that it sets, and its payload
        self._steps_together = False
        self._looked = 0.0
        self._all_done = bytes(len(env_ids))
        self._reports = Reports(env_ids, env_name)
        self._lifecycle = Lifecycle(start, policy, self._reports, self.failures)

    @property
    def worker(self) -> Worker:
        """The present worker."""
        return self._lifecycle.worker

    @property
    def pid(self) -> int:
        """The process id of the present worker."""
        return self.worker.pid

    @property
    def busy_s(self) -> float:
        """Seconds that all its workers have spent stepping."""
        return self._lifecycle.busy_s

    @property
    def steps_made(self) -> int:
        """Steps of all its envs, by all its workers."""
        return int(self._part.progress[1])

    @property
    def restarts(self) -> int:
        """Number of times that its worker was replaced."""
        return self._lifecycle.attempt

    @property
    def causes(self) -> tuple[RestartCause, ...]:
        """Causes of its latest replacements."""
        return tuple(self._lifecycle.causes)

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Return how an env began with the present worker; see :meth:`Reports.since_restart`."""
        return self._reports.since_restart(env_id)

    def process_use(self, looks: bool) -> ProcessUse:
        """Return what the worker's process uses. The use of a single thread is not known."""
        return self.worker.use.look() if looks else self.worker.use.last()

    @property
    def node(self) -> str | None:
        """The machine of the present worker; None is this machine."""
        return self.worker.node

    def describe(self) -> Description:
        """Wait until the envs are built, and return their description. Errors are raised here."""
        description = self._lifecycle.describe()
        self._steps_together = description.steps_together
        return description

    def assign(
        self, assignment: Assignment, shared: Any, arrays: BatchArrays, orders: Orders
    ) -> None:
        """Give the worker its part of the arrays and of the orders."""
        mode, steps_together = assignment.autoreset_mode, self._steps_together
        self._orders = orders
        self._part = part = orders.part(self.env_ids, assignment.index)
        self._reports.attach(part, arrays, mode, steps_together)
        self._lost_envs = LostEnvs(part, orders, arrays, mode, steps_together)
        self._lifecycle.assign(assignment, shared, part, orders, self._lost_envs)

    # ---------------------------------------------------------------- orders

    def begin_step(self, buffer: int, number: int) -> None:
        """Order a step of all envs, as :meth:`begin` does for any order."""
        lifecycle = self._lifecycle
        if self._restarts or self._lost_envs.lost or not lifecycle.is_up:
            lifecycle.begin(Order(STEP, buffer, number))
            return
        self._part.ask_all(STEP, buffer, number)
        lifecycle.worker.events.go.set()

    def begin(self, order: Order) -> None:
        """Give an order to envs. Giving it again has no further effect. Raises nothing."""
        lifecycle = self._lifecycle
        if self._restarts or self._lost_envs.lost or not lifecycle.is_up:
            lifecycle.begin(order)
            return
        self._part.ask(order)
        lifecycle.worker.events.go.set()

    def poll(self, deadline: float | None = None) -> None:
        """Take the answers that have come. Errors are added to ``failures``."""
        self._survives(self._take_in, deadline)
        self._lost_envs.finish_closing()

    def _take_in(self) -> None:
        self._lifecycle.resume()
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()
        now = time.perf_counter()
        if now - self._looked > _LOOK_S and not self._lifecycle.is_ended:
            self._looked = now
            self._lifecycle.look()

    @property
    def needs_poll(self) -> bool:
        """True if answers are incomplete until ``poll`` is called."""
        return bool(self._lost_envs.closing)

    def finish(self, deadline: float | None = None) -> bool:
        """Wait until all envs have answered. Return whether ``failures`` contains any."""
        part, lifecycle = self._part, self._lifecycle
        if lifecycle.is_unfinished:
            self._survives(lifecycle.resume, deadline)
        if not part.is_busy():
            lifecycle.worker.events.done.take()  # otherwise unused sets would add up
        while part.is_busy():
            try:
                done = lifecycle.worker.events.done
                if not done.wait(self._keep_waiting, deadline) and part.is_busy():
                    self._look_after_messages()
                    if deadline is not None and time.perf_counter() >= deadline:
                        raise NotFinishedError
            except WorkerError as error:
                self._fail(error, _closed_by(error))
        if part.fence is not None:
            part.fence()
        statuses = part.status.tobytes()
        self.has_extras = statuses != self._all_done
        has_messages = self.has_extras and _IN_MESSAGE in statuses
        if has_messages and not self._survives(self._take_messages, deadline):
            return self.finish(deadline)  # a new worker may be resetting envs
        if self._lost_envs.closing or self._watches_memory:
            self._lost_envs.finish_closing()
            lifecycle.recycle_if_large()
        return bool(self.failures)

    def forget(self) -> None:
        """Drop all answers that have come, and the pending request."""
        if self.is_torn:
            self._fail(self._lifecycle.died(TornError()))
        self.failures.clear()
        if self._lifecycle.is_up:
            self._lifecycle.forget()
        self._call = None

    @property
    def is_torn(self) -> bool:
        """True if an interruption has cut a message short, which only a reset repairs."""
        return self._lifecycle.is_torn

    def check(self) -> None:
        """Raise a WorkerError if the worker has exited or missed a deadline."""
        self._lifecycle.check()

    def _keep_waiting(self) -> bool:
        if not self._part.is_busy():
            return False
        self._look_after_messages()
        self.worker.events.go.set_if_clear()  # an interruption may have lost it
        return True

    def _look_after_messages(self) -> None:
        """Check the worker and take its messages: it waits until a large one is read."""
        self._lifecycle.look()
        if _IN_MESSAGE in self._part.status.tobytes():
            self._take_messages()

    def _survives(self, read: Callable[[], None], deadline: float | None) -> bool:
        """Call a function that reads messages. Return False if the worker failed meanwhile."""
        return self._lifecycle.within(deadline, self._attempt, read)

    def _attempt(self, read: Callable[[], None]) -> bool:
        try:
            read()
        except WorkerError as error:
            self._fail(error, _closed_by(error))
            return False
        return True

    def _take_messages(self) -> None:
        """Take the messages that belong to answers which have come."""
        part = self._part
        first_id = self.env_ids.start
        # `answered` is read before `status`, which is then the status of the last order.
        for place in (part.asked == part.answered).nonzero()[0].tolist():
            if part.fence is not None:
                part.fence()
            number, env_id = int(part.answered[place]), first_id + place
            if part.status[place] != IN_MESSAGE or self._taken.get(env_id) == number:
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
            self._taken.update((first_id + i, number) for i in same)
            self._lifecycle.drop_message(number)

    def _message_of_order(self, env_id: int) -> Any:
        """Wait for the message of an order that an env has carried out, and return its content."""
        order = Awaited(env_id, *self._part.last_order(env_id))
        return self._lifecycle.message(order.number, order)

    def _fail(self, error: WorkerError, failed: Sequence[int] = ()) -> None:
        """Handle a failure of the worker.

        Args:
            error: what happened.
            failed: envs that the error has failed, whether or not they have answered.
        """
        self._lifecycle.fail(error, [*self._incomplete(), *failed])

    def _incomplete(self) -> list[int]:
        """Return envs that have answered, but without a message that their answer needs."""
        part, orders, incomplete = self._part, self._orders, []
        for place in (part.asked == part.answered).nonzero()[0].tolist():
            env_id, number = self.env_ids[place], part.answered[place]
            if number in (orders.received[env_id], self._taken.get(env_id)):
                continue
            is_known = self.reader is None or self.reader.knows(env_id, int(part.buffer[place]))
            if part.status[place] == IN_MESSAGE or not is_known:
                incomplete.append(env_id)
        return incomplete

    # ---------------------------------------------------------------- requests

    def request(self, method: str, *args: Any) -> tuple[str, Any]:
        """Return a call of a method of the worker's batch, ready to be sent."""
        request = self._lifecycle.request(method, *args)
        self._setting = ((method, args[0]), request[1]) if method == "set_attr" else None
        return request

    def begin_call(self, request: tuple[str, Any]) -> None:
        """Send a request.

        Raises:
            WorkerError: if the worker is lost, or fails meanwhile.
        """
        try:
            self._call = self._lifecycle.begin_request(*request)
        except (WorkerDied, WorkerTimeout) as error:
            if self._lifecycle.is_up:
                self._fail(error)
            raise

    def finish_call(self, deadline: float | None = None) -> Any:
        """Wait for the answer to a request, and return its result or raise its error."""
        if self._call is None:
            raise UsageError("The call was cut short by an interruption; make it again")
        content = self._lifecycle.within(deadline, self._answer, self._call)
        raise_failure(content)
        if self._setting is not None:  # new workers get only values that the envs have accepted
            self._lifecycle.keep_for_new_workers(*self._setting)
        return content

    def _answer(self, number: int) -> Any:
        """Wait for the answer to a request, after which the request has ended."""
        lifecycle = self._lifecycle
        try:
            content = lifecycle.message(number)
        except WorkerError as error:
            self._call = None
            lifecycle.drop_message(number)
            if isinstance(error, (WorkerDied, WorkerTimeout)):
                self._fail(error)
            raise
        self._call = None
        lifecycle.drop_message(number)
        return content

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset, for messages and for a worker that replaces this one."""
        self._reports.note_seeds(seeds, mask)

    def prepare_reset(self, prepared: dict[int, tuple[int | None, Any]]) -> Any:
        """Return a request with seed and options, by env id, of the reset that will be ordered."""
        request = self.request(PREPARE_RESET, prepared)
        self._lifecycle.keep_for_new_workers(PREPARE_RESET, request[1])
        return request

    def tell_reset(self, request: tuple[str, Any]) -> None:
        """Send what was prepared to the worker. A worker that is starting receives it later."""
        if not self._lifecycle.is_up:
            return
        try:
            self._request_before("reset", request)
        except WorkerError:
            if not self._lifecycle.is_starting:
                raise

    def adopt_larger_rows(self, shape: RowShape) -> None:
        """Make the worker, and all later ones, use the larger row buffer."""
        lifecycle = self._lifecycle
        if not lifecycle.is_up:
            return
        try:
            self._request_before(
                "step", self.request(ADOPT_LARGER_ROWS, shape), lifecycle.send_larger_rows
            )
        except WorkerError as error:
            if lifecycle.is_up:
                self._fail(error)
            lifecycle.defer(error)

    def _request_before(
        self, command: str, request: tuple[str, Any], meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Make a request that a step or a reset needs first, within the time of that command.

        Args:
            command: "step" or "reset".
            request: the request.
            meanwhile: called once the request was sent.
        """
        self.begin_call((command, request[1]))
        meanwhile()
        self.finish_call()

    # ---------------------------------------------------------------- acting in the worker

    def lend(self, block: SharedBlock) -> None:
        """Give the worker access to a block. Methods that are installed later use its memory."""
        self.begin_call(self.request(LEND))
        self._lifecycle.send_block(block)
        self.finish_call()

    def find_actions(self, last_action: Callable[[int], Any]) -> None:
        """Set how errors find the actions of a policy that acts in the worker.

        Args:
            last_action: returns the action of the latest step of an env, by env id.
        """
        self._reports.find_actions(last_action)

    def replace_after(self, error: WorkerError) -> None:
        """Replace a worker that failed at a request, unless that was done already.

        The new worker starts in the background, and the next request brings it up to date. Blocks
        and methods of the old worker must be lent and installed again.

        Args:
            error: what happened.

        Raises:
            WorkerError: ``error``, if no restart is left.
        """
        self._call = None
        if self._lifecycle.is_up:
            self._fail(error)  # no order has failed: the collector closes what was cut short
        if self._lifecycle.is_ended:
            raise error

    def replace_if_large(self) -> bool:
        """Replace a worker above ``max_worker_rss_mb``, and return whether it was replaced.

        Call this between requests, when an episode of its envs has ended.
        """
        return self._watches_memory and self._lifecycle.recycle_if_large(True)

    @property
    def message_pipe(self) -> Any:
        """The pipe of a worker process, for waiting only. Readable once a message has come."""
        return self.worker.channel.pipe  # type: ignore[attr-defined]

    def call_between_waits(self, function: Callable[[], None]) -> None:
        """Call a function ten times a second while this worker is waited for.

        Args:
            function: an exception that it raises ends the wait, which can be repeated.
        """
        self._lifecycle.call_between_waits(function)

    # ---------------------------------------------------------------- the end

    def begin_close(self, deadline: float) -> bool:
        """Ask the worker to close its envs. Return False if it has exited or reads no more."""
        if not self._lifecycle.is_up:
            return False
        try:
            self._lifecycle.within(deadline, self.begin_call, self.request("close"))
        except (RookeryError, NotFinishedError):
            return False
        return True

    def stop(self, deadline: float) -> None:
        """End the worker by ``deadline`` and release its resources."""
        self.worker.stop(deadline)


def assign_all(
    backends: Sequence[WorkerBackend],
    spaces: BatchSpaces,
    autoreset_mode: AutoresetMode,
    shared: Any,
    arrays: BatchArrays,
    orders: Orders,
) -> None:
    """Give the workers of a vector env their parts.

    Args:
        backends: all backends with workers.
        spaces: spaces of the envs.
        autoreset_mode: what happens when an episode ends.
        shared: the shared memory that workers are given.
        arrays: the arrays of the envs.
        orders: the orders to the envs.
    """
    for index, backend in enumerate(backends):
        assignment = Assignment(spaces, autoreset_mode, len(backends), index, backend.env_ids)
        backend.assign(assignment, shared, arrays, orders)


def _closed_by(error: WorkerError) -> Sequence[int]:
    """Return the envs that an error has failed, whether or not they have answered."""
    return error.env_ids if isinstance(error, (EnvFailed, WorkerTimeout)) else ()
