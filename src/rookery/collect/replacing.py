"""Replacing: new workers, in which the policy acts, in the place of lost ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rookery.collect.actor import ActorSpec, install_actor
from rookery.collect.rollout_buffers import DROPPED, NO_ROW, ROW, START, RolloutBuffers
from rookery.errors import EnvFailed, WorkerDied, WorkerError, WorkerTimeout
from rookery.shared import SharedBlock
from rookery.worker.protocol import INSTALL
from rookery.worker.worker_backend import WorkerBackend

# What a worker may be replaced for. A policy that raises would do so in the next one, too.
FAULTS = (EnvFailed, WorkerDied, WorkerTimeout)


class Replacing:
    """Keeps in mind where workers are in their rollouts, and brings new ones there.

    A fault costs one row of all envs of its worker: that in which it happened, which is closed as
    truncated and marked invalid. The new worker goes on with the next row. Where newer weights were
    published meanwhile it begins the rollout anew instead, because all of its rows are to come from
    one version.

    Args:
        workers: those that may be lost.
        specs: what the actor of each was told.
        buffers: in which they fill rollouts.
        block: the memory of the buffers, for new workers.
        num_streams: of random numbers, that actors had at first.

    Attributes:
        lost: workers in whose place a new one starts, that has no actor yet.
        lost_rows: rows, of one env each, that were begun and are not to be learned from.
    """

    def __init__(
        self,
        workers: Sequence[WorkerBackend],
        specs: Sequence[ActorSpec],
        buffers: RolloutBuffers,
        block: SharedBlock,
        num_streams: int,
    ) -> None:
        self.lost: set[int] = set()
        self.lost_rows = 0
        self._workers, self._specs, self._buffers, self._block = workers, specs, buffers, block
        self._num_streams = num_streams
        self._words = [buffers.words(spec.first_id) for spec in specs]

    def begin(self, index: int) -> None:
        """Note that a worker is about to fill a buffer; it does nothing yet."""
        words = self._words[index]
        words[ROW], words[START], words[DROPPED] = NO_ROW, 0, 0

    def lose(self, index: int, error: WorkerError, buffer: int | None) -> None:
        """Have a worker replaced, and close the row in which it was.

        Args:
            index: of the worker.
            error: what happened.
            buffer: that it was filling; None if it was doing something else.

        Raises:
            WorkerError: that error, where no restart is left.
        """
        self._workers[index].replace_after(error)
        self.lost.add(index)
        words = self._words[index]
        if buffer is None or words[ROW] == NO_ROW:
            return
        row = words[ROW] - buffer * self._buffers.shape.num_steps
        self._buffers.close_row(buffer, row, self._envs(index))
        words[ROW], words[START] = NO_ROW, row + 1

    def install(self, index: int) -> None:
        """Wait for a new worker, and install an actor there that draws numbers of its own.

        Raises:
            WorkerError: when it fails.
        """
        worker, spec = self._workers[index], self._specs[index]
        worker.lend(self._block)
        own = replace(spec, stream=spec.stream + self._num_streams * worker.restarts)
        worker.begin_call(worker.request(INSTALL, install_actor, own))
        worker.finish_call()
        self.lost.discard(index)

    def finish(self, index: int, buffer: int, has_ended: bool) -> None:
        """Count what a rollout has lost, and replace a worker that is too large.

        Args:
            index: of the worker that has filled it.
            buffer: where it lies.
            has_ended: whether an episode has ended in it.
        """
        words = self._words[index]
        if words[START]:
            self.lost_rows += self._buffers.num_invalid(buffer, self._envs(index))
        self.lost_rows += words[DROPPED]
        if has_ended and self._workers[index].replace_if_large():
            self.lost.add(index)

    def restarts(self) -> int:
        """Count the workers that were replaced."""
        return sum(worker.restarts for worker in self._workers)

    def _envs(self, index: int) -> slice:
        spec = self._specs[index]
        return slice(spec.first_id, spec.last_id)
