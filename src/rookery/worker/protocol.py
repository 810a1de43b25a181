"""What a caller and a worker agree on: the seams between them, and what a new worker is told."""

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
from rookery.worker.channel import Channel

# Requests that are no methods of the batch.
PREPARE_RESET = "prepare_reset"  # seeds and options, by env, for the reset that will be ordered
ADOPT_LARGER_ROWS = "adopt_larger_rows"  # go on with the larger rows that follow
LEND = "lend"  # map the block that follows
INSTALL = "install"  # put something beside the batch, see rookery.worker.loop

STACK_SIGNAL = getattr(signal, "SIGUSR1", None)  # "write your Python stack"; None on Windows


class BellOfMany(Protocol):
    """Wakes whoever waits for any of several workers."""

    def wait(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring; False if ``anyone_left`` said so, or if the deadline passed first."""

    def forget_rings(self) -> None:
        """Be silent."""


class Bell(BellOfMany, Protocol):
    """Wakes whoever waits for it, see :class:`rookery.worker.wait.event.Doorbell`."""

    @property
    def ring(self) -> Callable[[], None]:
        """Wakes who waits, or who will wait next."""

    def ring_again(self) -> None:
        """Ring if no ring is left: for rings that nobody may ever hear, of which too many fail."""

    def take_ring(self) -> bool:
        """Take a ring if one has come; whether one had."""


class Bells(NamedTuple):
    """The bells between a caller and one worker.

    Attributes:
        go: rung by the caller when there is something to do.
        done: rung by the worker when envs that were asked together have answered.
        arrivals: rung by all workers when an env has answered that was asked singly.
    """

    go: Bell
    done: Bell
    arrivals: Bell


class Worker(Protocol):
    """A thread or process that serves a batch of envs; see :mod:`rookery.worker.loop`."""

    kind: str
    fate: str  # what became of it when it was killed, in words
    bells: Bells

    @property
    def pid(self) -> int:
        """The process in which its envs are; 0 while it is not known."""

    @property
    def node(self) -> str | None:
        """The machine on which that is; None is this one."""

    @property
    def use(self) -> UseWatch:
        """What its process uses."""

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


@dataclass(frozen=True)
class WorkerSpec:
    """What a new worker process is told first.

    Attributes:
        make_batch: builds its envs; ``(make_batch, arguments)``.
        registrations: what the caller registered with Gymnasium.
        environment: the caller's environment variables, thread caps included; None leaves those
            that the process was started with.
        working_directory: the caller's; None if it is gone, or means nothing there.
    """

    make_batch: BatchMaker
    registrations: Registrations
    environment: dict[str, str] | None
    working_directory: str | None


@dataclass(frozen=True)
class BatchMaker:
    """How the envs of a worker are built, there.

    Attributes:
        batch_type: a class of batches: ``batch_type(recipes, first_id)``.
        recipes: what it is made of.
        first_id: index of its first env in the vector env.
    """

    batch_type: Callable[[Any, int], Batch]
    recipes: Sequence[Any]
    first_id: int

    def __call__(self) -> Batch:
        """Build the batch."""
        return self.batch_type(self.recipes, self.first_id)


@dataclass(frozen=True)
class Assignment:
    """How a worker is to use the shared block that follows.

    Attributes:
        spaces: decide the columns.
        autoreset_mode: what happens when an episode ends.
        num_workers: how many share the block.
        index: which of them this one is.
        env_ids: its envs.
        replaces: seeds for the next reset of its envs, if it replaces a worker that was lost.
        first_requests: how many requests it has to answer before it looks at orders, which may be
            there already and rest on what the requests say.
    """

    spaces: BatchSpaces
    autoreset_mode: AutoresetMode
    num_workers: int
    index: int
    env_ids: range
    replaces: tuple[int | None, ...] | None = None
    first_requests: int = 0


class NotFinishedError(Exception):
    """The deadline passed first; what was begun goes on. Never reaches a user."""
