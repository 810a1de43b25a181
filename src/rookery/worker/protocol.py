"""What is told to a new worker, and the names of requests that are no methods of its batch."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.env.arrays import BatchSpaces
from rookery.env.batches import Batch
from rookery.env.registrations import Registrations

# Requests that are no methods of the batch.
PREPARE_RESET = "prepare_reset"  # seeds and options, by env, for the reset that will be ordered
ADOPT_SLAB = "adopt_slab"  # go on with the slab that follows
LEND = "lend"  # map the block that follows
INSTALL = "install"  # put something beside the batch, see rookery.worker.requests

STACK_SIGNAL = getattr(signal, "SIGUSR1", None)  # "write your Python stack"; None on Windows


@dataclass(frozen=True)
class WorkerSpec:
    """What a new worker process is told first.

    Attributes:
        make_batch: builds its envs; ``(make_batch, arguments)``.
        registrations: what the caller registered with Gymnasium.
        environment: the caller's environment variables, thread caps included.
        working_directory: the caller's, None if it is gone.
    """

    make_batch: BatchMaker
    registrations: Registrations
    environment: dict[str, str]
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
        entropy: what its global random streams are seeded with.
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
