"""ActingWorker: a worker in which a copy of the policy acts, and its replacement after a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rookery.collect.actor import RESET_ALL, ActorReport, ActorSpec, install_actor
from rookery.collect.rollout_buffers import DROPPED, NO_ROW, ROW, START, RolloutBuffers
from rookery.errors import EnvFailed, RookeryError, WorkerDied, WorkerError, WorkerTimeout
from rookery.shared import SharedBlock
from rookery.worker.protocol import INSTALL
from rookery.worker.worker_backend import WorkerBackend

# Errors after which a worker may be replaced. A policy that raises would raise again.
_FAULTS = (EnvFailed, WorkerDied, WorkerTimeout)

NOT_YET: Any = object()  # returned in place of an answer that a new worker will give


class ActingWorker:
    """A worker in which a copy of the policy acts, and the request that it is working on.

    A fault costs one row of every env of the worker: the row in which it happened is closed as
    truncated and marked invalid. The new worker continues with the next row. If newer weights were
    published in the meantime, it fills the rollout from its start instead, because all rows of a
    rollout must come from one version.

    Args:
        worker: the worker in which the actor is installed.
        spec: what the worker needs to create its actor.
        buffers: the buffers in which the worker fills rollouts.
        block: the memory of the buffers.
        num_streams: number of random streams that all actors use at first.
        restarts: True if a lost worker is replaced.

    Attributes:
        worker: the worker, also after it was replaced.
        env_ids: the indices of its envs.
        is_busy: True while a request is pending.
        lost_rows: number of started env steps that are excluded from learning.
    """

    def __init__(
        self,
        worker: WorkerBackend,
        spec: ActorSpec,
        buffers: RolloutBuffers,
        block: SharedBlock,
        num_streams: int,
        restarts: bool,
    ) -> None:
        self.worker = worker
        self.env_ids = worker.env_ids
        self.is_busy = False
        self.lost_rows = 0
        self._spec, self._buffers, self._block = spec, buffers, block
        self._num_streams, self._restarts = num_streams, restarts
        self._envs = slice(spec.first_id, spec.last_id)
        self._words = buffers.words(spec.first_id)
        self._is_lost = False  # a new worker is starting, which has no actor yet
        self._buffer = 0
        self._request: Any = None
        # Pickled once, because every rollout repeats one of these requests.
        self._collect = [
            worker.request("collect", buffer) for buffer in range(buffers.shape.num_buffers)
        ]
        worker.find_actions(partial(buffers.last_action, self.env_ids.start))

    def begin_install(self) -> None:
        """Send the policy to the worker; after a restart with a new random stream."""
        worker = self.worker
        stream = self._spec.stream + self._num_streams * worker.restarts
        request = worker.request(INSTALL, install_actor, replace(self._spec, stream=stream))
        worker.lend(self._block)
        worker.begin_call(request)

    def begin(self, buffer: int) -> None:
        """Start to fill a buffer."""
        self._buffer = buffer
        self._begin(self._collect[buffer])

    def begin_reset(self, seeds: Sequence[int | None]) -> None:
        """Start to reset the envs, with a seed or None for each."""
        self.worker.note_seeds(seeds, None)
        self._begin(("reset", self.worker.request(RESET_ALL, seeds)[1]))

    def finish(self) -> Any:
        """Wait for the answer to the pending request, also from replacements, and return it."""
        while (answer := self.take()) is NOT_YET:
            pass
        return answer

    def take(self) -> Any:
        """Wait for the answer; return NOT_YET if the worker was lost and is being replaced.

        Raises:
            EnvFailed, WorkerDied, WorkerTimeout: the worker failed and is not replaced.
        """
        try:
            if self._is_lost:
                self._put_in_place()
                return NOT_YET
            answer = self.worker.finish_call()
        except _FAULTS as error:
            self._lose(error)
            return NOT_YET
        except RookeryError:
            self.is_busy = False
            raise
        self.is_busy = False
        return answer

    def check(self) -> None:
        """Replace the worker if it died or missed a deadline.

        Raises:
            WorkerDied, WorkerTimeout: the fault policy does not replace the worker.
        """
        try:
            self.worker.check()
        except _FAULTS as error:
            if self._is_lost:
                self._put_in_place()
            else:
                self._lose(error)

    def note_finished(self, report: ActorReport) -> None:
        """Count the rows that a finished rollout lost, and replace a worker that is too large."""
        if not self._restarts:
            return
        words = self._words
        if words[START]:
            self.lost_rows += self._buffers.num_invalid(self._buffer, self._envs)
        self.lost_rows += words[DROPPED]
        if report.finals is not None and self.worker.replace_if_large():
            self._is_lost = True

    def _begin(self, request: Any) -> None:
        self.is_busy, self._request = True, request
        words = self._words
        words[ROW], words[START], words[DROPPED] = NO_ROW, 0, 0
        self._send()

    def _send(self) -> None:
        """Send the pending request; a new worker receives it after its actor was installed."""
        if self._is_lost:
            return
        try:
            self.worker.begin_call(self._request)
        except _FAULTS as error:
            self._lose(error)

    def _put_in_place(self) -> None:
        """Wait for the new worker, install its actor and send it the pending request."""
        try:
            self.begin_install()
            self.worker.finish_call()
            self._is_lost = False
        except _FAULTS as error:
            self._lose(error)
        self._send()

    def _lose(self, error: WorkerError) -> None:
        """Replace the worker and close the row that it was stepping, or raise the error."""
        try:
            if not self._restarts:
                raise error
            self.worker.replace_after(error)
        except WorkerError:
            self.is_busy = False
            raise
        self._is_lost = True
        words = self._words
        if words[ROW] != NO_ROW:
            row = words[ROW] - self._buffer * self._buffers.shape.num_steps
            self._buffers.close_row(self._buffer, row, self._envs)
            words[ROW], words[START] = NO_ROW, row + 1
