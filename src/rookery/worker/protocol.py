"""Protocols and messages between a caller and its workers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gymnasium.vector import AutoresetMode

from rookery.common.resources import UseWatch
from rookery.env.registrations import Registrations
from rookery.env.seam import Batch
from rookery.shared import SharedBlock
from rookery.shared.arrays import BatchSpaces

# Requests that are not methods of the batch.
PREPARE_RESET = "prepare_reset"  # seeds and options, by env, for the reset that will be ordered
ADOPT_LARGER_ROWS = "adopt_larger_rows"  # use the larger row buffer that follows
LEND = "lend"  # map the block that follows
INSTALL = "install"  # add methods to those of the batch, see rookery.worker.loop

STACK_SIGNAL = getattr(signal, "SIGUSR1", None)  # asks for the Python stack; None on Windows


class Channel(Protocol):
    """One end of a channel."""

    def encode(self, content: Any) -> Any:
        """Return the payload for some content. Raises what the content raises when pickled."""

    def decode(self, payload: Any) -> Any:
        """Return the content of a payload. Raises what the content raises when unpickled."""

    def failure(self, error: BaseException) -> Any:
        """Return the payload for an error; its content is a Failure, or the error itself."""

    def send(self, number: int, payload: Any, wake: Callable[[], None] = lambda: None) -> None:
        """Send a message.

        Args:
            number: number of the order or request that it belongs to.
            payload: what ``encode`` returned.
            wake: called when sending cannot continue until the other side reads.

        Raises:
            ChannelClosedError: if the other side is gone.
        """

    def has_message(self) -> bool:
        """Return whether the beginning of a message has come."""

    def receive(self) -> tuple[int, Any]:
        """Wait for a message. Raises ChannelClosedError if none can come."""

    def receive_into(self, messages: dict[int, Any]) -> None:
        """Wait for a message and add it to others, by number. An interruption loses none."""

    @property
    def is_torn(self) -> bool:
        """True if an interruption cut a message short, so that the channel is unusable."""

    def close(self) -> None:
        """Close the channel."""


class Waitable(Protocol):
    """An event that several workers set."""

    def wait(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until set. Return False if ``keep_waiting`` or the deadline ended the wait."""

    def clear(self) -> None:
        """Reset the event."""


class Event(Waitable, Protocol):
    """An event that one side sets, see :class:`rookery.worker.wait.event.ProcessEvent`."""

    @property
    def set(self) -> Callable[[], None]:
        """Set the event: wakes the waiter, or the next one."""

    def set_if_clear(self) -> None:
        """Set the event unless it is set already, so that unused sets do not add up."""

    def take(self) -> bool:
        """Reset one set, without waiting. Return whether the event was set."""


class Events(NamedTuple):
    """The events between a caller and one worker.

    Attributes:
        go: the caller sets it when there is something to do.
        done: the worker sets it when envs that were asked together have answered.
        arrivals: every worker sets it when an env that was asked singly has answered.
    """

    go: Event
    done: Event
    arrivals: Event


class Worker(Protocol):
    """A thread or process that serves a batch of envs; see :mod:`rookery.worker.loop`."""

    kind: str
    fate: str  # for messages: what has happened to it when it was killed
    events: Events

    @property
    def pid(self) -> int:
        """The id of the process with its envs; 0 while it is unknown."""

    @property
    def node(self) -> str | None:
        """The machine of that process; None is this machine."""

    @property
    def use(self) -> UseWatch:
        """The use of its process."""

    @property
    def channel(self) -> Channel:
        """The channel to the worker."""

    def greet(self) -> None:
        """Send what to build, once the worker runs."""

    def has_built(self) -> None:
        """Release what is needed only until the envs are built."""

    def assign(self, assignment: Assignment, shared: Any) -> None:
        """Give the worker its part of the arrays."""

    def send_block(self, block: SharedBlock) -> None:
        """Give the worker access to a block."""

    def is_alive(self) -> bool:
        """Return whether the worker runs."""

    def end_in_words(self) -> str:
        """Return how the worker has ended, for messages."""

    def python_stack(self) -> str:
        """Return the Python stack of the worker, for messages."""

    def kill(self) -> None:
        """End the worker at once."""

    def stop(self, deadline: float) -> None:
        """End the worker by a ``time.perf_counter()`` time, and release its resources."""


@dataclass(frozen=True)
class WorkerSpec:
    """The first message to a new worker process.

    Attributes:
        make_batch: builds its envs.
        registrations: the caller's registrations with Gymnasium.
        environment: the caller's environment variables, including thread caps; None leaves the
            variables that the process was started with.
        working_directory: the caller's working directory; None if it is deleted, or does not exist
            on the worker's machine.
    """

    make_batch: BatchMaker
    registrations: Registrations
    environment: dict[str, str] | None
    working_directory: str | None


@dataclass(frozen=True)
class BatchMaker:
    """Builds the envs of a worker, in the worker.

    Attributes:
        batch_type: a class of batches: ``batch_type(recipes, first_id)``.
        recipes: how to build each env.
        first_id: index of the first env in the vector env.
    """

    batch_type: Callable[[Any, int], Batch]
    recipes: Sequence[Any]
    first_id: int

    def __call__(self) -> Batch:
        """Build the batch."""
        return self.batch_type(self.recipes, self.first_id)


@dataclass(frozen=True)
class Assignment:
    """Instructions to a worker for using the shared block that follows.

    Attributes:
        spaces: the spaces of the envs, which determine the columns.
        autoreset_mode: what happens when an episode ends.
        num_workers: number of workers that share the block.
        index: index of this worker among them.
        env_ids: the envs of this worker.
        replaces: seeds for the next reset of its envs, if it replaces a lost worker.
        first_requests: number of requests to answer before the first order. Orders may be there
            already and depend on these requests.
    """

    spaces: BatchSpaces
    autoreset_mode: AutoresetMode
    num_workers: int
    index: int
    env_ids: range
    replaces: tuple[int | None, ...] | None = None
    first_requests: int = 0


class NotFinishedError(Exception):
    """The deadline passed first; what was begun continues. Never reaches a user."""
