"""ActorPool: workers in which copies of one policy act, and the rollouts that they fill."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from rookery.collect.acting_worker import NOT_YET, ActingWorker
from rookery.collect.actor import ActorReport, ActorSpec
from rookery.collect.base import CollectorStatistics
from rookery.collect.rollout_buffers import RolloutBuffers, RolloutShape
from rookery.errors import RookeryError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.rollout.rollout import merge_finals
from rookery.shared import SharedBlock
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.pipes import LOOK_S, wait
from rookery.worker.protocol import NotFinishedError

_STOP_GRACE_S = 5.0


class ActorPool:
    """Workers that each fill one rollout at a time, and the waiting for them.

    Args:
        venv: the vector env with the workers; it is closed with the pool.
        policy: the policy that every worker copies.
        shape: shape of the rollouts.
        between_waits: called ten times a second while the pool waits for workers. If it raises, the
            wait ends.
        info_keys: keys of the numbers to keep from the infos of episode ends.
        faults: whether workers are replaced.
        streams: random stream of the first worker, and number of streams of this and all other
            pools together; None for a single pool.

    Attributes:
        workers: the workers, in the order of their envs.
        absent: indices of workers that lost their unfinished rollout; always empty here, because
            a new worker continues the rollout.
        policy_s: seconds that a worker spent outside env steps, mean over the workers.
        env_s: seconds that a worker spent in env steps, mean over the workers.
    """

    absent: frozenset[int] = frozenset()

    def __init__(
        self,
        venv: ProcessVectorEnv,
        policy: Policy,
        shape: RolloutShape,
        between_waits: Callable[[], None],
        info_keys: tuple[str, ...] = (),
        faults: FaultPolicy | None = None,
        streams: tuple[int, int] | None = None,
    ) -> None:
        self._venv = venv
        self.shape = shape
        self.policy_s = self.env_s = 0.0
        self._policy = policy
        self._between_waits = between_waits
        self._rollouts: dict[tuple[int, int, int], Rollout] = {}  # by buffer and envs
        self._buffers = RolloutBuffers(shape, policy.model)
        block = SharedBlock(self._buffers.size_bytes)
        first_stream, num_streams = streams or (0, len(venv.workers))
        restarts = faults is not None and faults.restarts
        try:
            self._buffers.map(block.memory)
            self.workers: tuple[ActingWorker, ...] = tuple(
                ActingWorker(
                    worker,
                    ActorSpec(shape, policy, ids.start, ids.stop, stream, info_keys),
                    self._buffers,
                    block,
                    num_streams,
                    restarts,
                )
                for stream, worker in enumerate(venv.workers, first_stream)
                for ids in [worker.env_ids]
            )
            self._install()
        except BaseException:
            block.close()
            raise
        if not restarts:  # no new worker will need it
            block.close()
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), venv, self.workers, self._buffers.stop, block
        )

    def _install(self) -> None:
        for worker in self.workers:
            worker.worker.call_between_waits(self._between_waits)
            worker.begin_install()
        _raise_first([_outcome(worker.worker.finish_call) for worker in self.workers])

    def publish(self, version: int | None = None) -> None:
        """Let the workers use the policy's present weights from their next rollout on.

        Args:
            version: version of the weights; None takes the policy's.
        """
        version = self._policy.current_version() if version is None else version
        self._buffers.weights.publish(self._policy.model, version)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Reset all envs; the first rollout starts from their new episodes."""
        for worker in self.workers:
            worker.begin_reset(list(seeds[worker.env_ids.start : worker.env_ids.stop]))
        self._finish_all()

    def begin(self, index: int, buffer: int) -> None:
        """Let a worker start to fill a buffer."""
        self.workers[index].begin(buffer)

    def finish(self, index: int) -> ActorReport | None:
        """Wait for a worker that fills a buffer; return None if it is being replaced.

        Raises:
            EnvFailed, WorkerDied, WorkerTimeout: the worker failed and is not replaced.
        """
        report = self._venv.waits.timed(self.workers[index].take)
        return None if report is NOT_YET else self._noted(index, report)

    def collect(self, buffer: int) -> Rollout:
        """Let all workers fill a buffer, and return the rollout as views."""
        reports = self._fill(buffer)
        rollout = self.rollout_of(buffer, slice(0, self.shape.num_envs))
        finals = [
            (worker.env_ids.start, report.finals)
            for worker, report in zip(self.workers, reports, strict=True)
            if report.finals is not None
        ]
        if finals:
            merge_finals(finals).put_into(rollout)
        return rollout

    def leave(self) -> None:
        """Stop the workers where they are; may be called by another thread than the pool's own."""
        self._buffers.stop[0] = 1

    def _fill(self, buffer: int) -> list[ActorReport]:
        for worker in self.workers:
            worker.begin(buffer)
        reports = self._venv.waits.timed(self._finish_all)
        took_s = [report.policy_s + report.env_s for report in reports]
        self._venv.waits.note_round(took_s, self.shape.num_steps)
        return [self._noted(index, report) for index, report in enumerate(reports)]

    def _noted(self, index: int, report: ActorReport) -> ActorReport:
        self.workers[index].note_finished(report)
        self.policy_s += report.policy_s / len(self.workers)
        self.env_s += report.env_s / len(self.workers)
        return report

    def statistics(self) -> CollectorStatistics:
        """Return counts of faults so far."""
        restarts = sum(worker.worker.restarts for worker in self.workers)
        return CollectorStatistics(restarts, sum(worker.lost_rows for worker in self.workers))

    def telemetry(self, looks: bool = True) -> Statistics:
        """Return measurements of envs, workers and caller, as from `VectorEnv.statistics`."""
        measured = self._venv.statistics(looks)
        steps = sum(env.steps for env in measured.envs)
        return replace(measured, vector_steps=steps // len(measured.envs), env_steps=steps)

    def wait(self) -> list[int]:
        """Wait until at least one worker has sent a message; return the indices of all that have.

        Raises:
            WorkerDied, WorkerTimeout: a worker failed during the wait and is not replaced.
        """
        while True:
            # Built again for each wait, because a new worker has another pipe.
            pipes: dict[Any, int] = {
                worker.worker.message_pipe: index
                for index, worker in enumerate(self.workers)
                if worker.is_busy
            }
            ready = self._venv.waits.timed(partial(wait, list(pipes), LOOK_S))
            if ready:
                return [pipes[pipe] for pipe in ready]
            self._between_waits()
            for index in pipes.values():
                self.workers[index].check()

    def rollout_of(self, buffer: int, envs: slice) -> Rollout:
        """Return the rollout of some envs, as views; see `RolloutBuffers.rollout`."""
        # Made once: it takes 60 us, and short rollouts are collected thousands of times a second.
        place = buffer, envs.start, envs.stop
        if place not in self._rollouts:
            self._rollouts[place] = self._buffers.rollout(buffer, envs)
        return replace(self._rollouts[place])

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the present workers."""
        return tuple(worker.worker.pid for worker in self.workers)

    def close(self) -> None:
        """Stop the workers at once, even during a rollout, and close the envs."""
        self._finalizer()
        # The last reference frees shared memory and semaphores.
        del self.workers, self._rollouts, self._buffers, self._venv

    def _finish_all(self) -> list[Any]:
        """Wait for all workers, also after an error; then raise the first error, if any."""
        return _raise_first([_outcome(worker.finish) for worker in self.workers])


def _outcome(finish: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error."""
    try:
        return finish()
    except RookeryError as error:
        return error


def _raise_first(answers: list[Any]) -> list[Any]:
    """Raise the first error among answers, if any."""
    for answer in answers:
        if isinstance(answer, RookeryError):
            raise answer
    return answers


def _end(
    owner_pid: int,
    venv: ProcessVectorEnv,
    workers: Sequence[ActingWorker],
    stop: Any,
    block: SharedBlock,
) -> None:
    """Stop the workers, then close their envs."""
    if os.getpid() != owner_pid:  # a forked copy must not stop its parent's workers
        return
    stop[0] = 1
    block.close()
    for worker in workers:
        worker.worker.call_between_waits(lambda: None)  # the callback could interrupt this wait
    have_stopped = False
    try:
        have_stopped = _have_stopped(workers)
    finally:
        for worker in workers:
            worker.is_busy = False
        if have_stopped:
            venv.close()
        else:
            # A late message of a worker would be taken for its answer to a close request.
            with suppress(RookeryError):
                venv.close(terminate=True)


def _have_stopped(workers: Sequence[ActingWorker]) -> bool:
    """Wait up to _STOP_GRACE_S seconds for busy workers, and return True if all have stopped.

    After a Ctrl-C a worker may be marked as busy although it received no request.
    """
    deadline = time.perf_counter() + _STOP_GRACE_S
    for worker in workers:
        if not worker.is_busy:
            continue
        try:
            worker.worker.finish_call(deadline)
        except NotFinishedError:
            return False
        except RookeryError:  # it stopped as requested, or failed when its result was not needed
            pass
    return True
