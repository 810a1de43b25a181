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

from rookery.collect.actor import RESET_ALL, ActorSpec, Report, install_actor
from rookery.collect.base import CollectorStatistics
from rookery.collect.replacing import FAULTS, Replacing
from rookery.collect.rollout_buffers import RolloutBuffers, RolloutShape
from rookery.errors import RookeryError, WorkerError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.rollout.rollout import merge_finals
from rookery.shared import SharedBlock
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.pipes import LOOK_S, wait
from rookery.worker.protocol import INSTALL, NotFinishedError
from rookery.worker.worker_backend import WorkerBackend

_STOP_GRACE_S = 5.0
_NOT_YET: Any = object()  # in place of an answer that a worker is going to give


class ActorPool:
    """Has workers fill rollouts, one at a time each, and waits for them.

    Args:
        venv: its workers are used; it is closed with the pool.
        policy: every worker gets a copy.
        shape: of the rollouts.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        between_waits: called ten times a second while workers are waited for; what it raises ends
            the wait.
        faults: whether workers are replaced.
        streams: which random numbers the first worker draws, and how many streams there are for
            this and other pools together; None means that there is no other.

    Attributes:
        workers: who fills them.
        absent: none of them: whoever is replaced goes on with what was begun.
        policy_s: seconds that a worker spent otherwise than stepping, in the mean.
        env_s: seconds that a worker spent stepping, in the mean.
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
        self.workers: tuple[WorkerBackend, ...] = venv.workers
        self._venv = venv
        self.shape = shape
        self.policy_s = self.env_s = 0.0
        self._policy = policy
        self._between_waits = between_waits
        self._under_way: set[int] = set()  # workers that are filling a rollout
        self._doing: dict[int, int | None] = {}  # which buffer each of them fills; None: a reset
        self._restarts = faults is not None and faults.restarts
        self._rollouts: dict[tuple[int, int, int], Rollout] = {}  # by buffer and envs
        self._buffers = RolloutBuffers(shape, policy.model)
        block = SharedBlock(self._buffers.size_bytes)
        first_stream, num_streams = streams or (0, len(self.workers))
        specs = [
            ActorSpec(shape, policy, worker.env_ids.start, worker.env_ids.stop, stream, info_keys)
            for stream, worker in enumerate(self.workers, first_stream)
        ]
        try:
            self._buffers.map(block.memory)
            self._install(block, specs)
        except BaseException:
            block.close()
            raise
        self._replacing = Replacing(self.workers, specs, self._buffers, block, num_streams)
        if not self._restarts:  # no worker to come needs it
            block.close()
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), venv, self.workers, self._under_way, self._buffers.stop, block
        )

    def _install(self, block: SharedBlock, specs: Sequence[ActorSpec]) -> None:
        requests = [
            worker.request(INSTALL, install_actor, spec)
            for worker, spec in zip(self.workers, specs, strict=True)
        ]
        for worker in self.workers:
            worker.call_between_waits(self._between_waits)
            worker.lend(block)
            worker.find_actions(partial(self._buffers.last_action, worker.env_ids.start))
        for worker, request in zip(self.workers, requests, strict=True):
            worker.begin_call(request)
        _raise_first([_outcome(worker.finish_call) for worker in self.workers])
        for worker in self.workers:  # from now on: there is nothing to leave in good order yet
            worker.call_between_waits(self._between_waits)
        # Pickled once: every rollout repeats one of a few requests.
        self._requests = [
            [worker.request("collect", buffer) for buffer in range(self.shape.num_buffers)]
            for worker in self.workers
        ]

    def publish(self, version: int | None = None) -> None:
        """Have the workers act with the policy's present weights, from their next rollout on.

        Args:
            version: of the weights; None asks the policy.
        """
        version = self._policy.current_version() if version is None else version
        self._buffers.weights.publish(self._policy.model, version)

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Reset all envs; what they show is where the first buffer goes on from."""
        self._resets = []
        for worker in self.workers:
            own = list(seeds[worker.env_ids.start : worker.env_ids.stop])
            worker.note_seeds(own, None)
            self._resets.append(("reset", worker.request(RESET_ALL, own)[1]))
        self._begin_all(None)
        self._finish_all()

    def begin(self, index: int, buffer: int) -> None:
        """Have a worker fill a buffer."""
        self._begin(index, buffer)

    def finish(self, index: int) -> Report | None:
        """Wait for a worker that fills a buffer; None if another one does so in its place.

        Raises:
            EnvFailed, WorkerDied, WorkerTimeout: when it failed, and is not replaced.
        """
        report = self._venv.waits.timed(lambda: self._take(index))
        return None if report is _NOT_YET else self._noted(index, report)

    def collect(self, buffer: int) -> Rollout:
        """Have all workers fill a buffer, and return the rollout, as views."""
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
        """Have the workers leave what they are doing; for another thread than the pool's own."""
        self._buffers.stop[0] = 1

    def _fill(self, buffer: int) -> list[Report]:
        self._begin_all(buffer)
        reports = self._venv.waits.timed(self._finish_all)
        took_s = [report.policy_s + report.env_s for report in reports]
        self._venv.waits.note_round(took_s, self.shape.num_steps)
        return [self._noted(index, report) for index, report in enumerate(reports)]

    def _noted(self, index: int, report: Report) -> Report:
        buffer = self._doing[index]
        if self._restarts and buffer is not None:
            self._replacing.finish(index, buffer, report.finals is not None)
        self.policy_s += report.policy_s / len(self.workers)
        self.env_s += report.env_s / len(self.workers)
        return report

    def statistics(self) -> CollectorStatistics:
        """What faults have cost so far."""
        return CollectorStatistics(self._replacing.restarts(), self._replacing.lost_rows)

    def telemetry(self, looks: bool = True) -> Statistics:
        """What workers, envs and caller did and use; see `VectorEnv.statistics`."""
        own = self._venv.statistics(looks)
        steps = sum(env.steps for env in own.envs)
        return replace(own, vector_steps=steps // len(own.envs), env_steps=steps)

    def wait(self) -> list[int]:
        """Wait until at least one worker has something to say, and return which have.

        Raises:
            WorkerDied, WorkerTimeout: when one of them failed meanwhile, and is not replaced.
        """
        while True:
            # Each time anew: another worker has another pipe.
            pipes: dict[Any, int] = {
                self.workers[index].message_pipe: index for index in self._under_way
            }
            ready = self._venv.waits.timed(partial(wait, list(pipes), LOOK_S))
            if ready:
                return [pipes[pipe] for pipe in ready]
            self._between_waits()
            for index in self._under_way:
                self._look_after(index)

    def _look_after(self, index: int) -> None:
        """Notice a worker that will never answer."""
        try:
            self.workers[index].check()
        except FAULTS as error:
            if index in self._replacing.lost:
                self._put_in_place(index)  # which tries once more, as often as is allowed
            else:
                self._lose(index, error)

    def rollout_of(self, buffer: int, envs: slice) -> Rollout:
        """The rollout of some envs, as views; see `RolloutBuffers.rollout`."""
        # Made once: 60 us that with rollouts of a few steps are spent thousands of times a second.
        place = buffer, envs.start, envs.stop
        if place not in self._rollouts:
            self._rollouts[place] = self._buffers.rollout(buffer, envs)
        return replace(self._rollouts[place])

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the present workers."""
        return tuple(worker.pid for worker in self.workers)

    def close(self) -> None:
        """Stop the workers where they are, and close the envs."""
        self._finalizer()
        # Shared memory and semaphores go with the last reference to them.
        del self.workers, self._requests, self._rollouts, self._buffers, self._replacing
        del self._venv

    def _begin_all(self, buffer: int | None) -> None:
        for index in range(len(self.workers)):
            self._begin(index, buffer)

    def _begin(self, index: int, buffer: int | None) -> None:
        """Have a worker fill a buffer, or reset its envs."""
        self._under_way.add(index)
        self._doing[index] = buffer
        self._replacing.begin(index)
        self._ask(index)

    def _ask(self, index: int) -> None:
        """Tell a worker what it has to do; one that is on its way is told once it is there."""
        if index in self._replacing.lost:
            return
        buffer = self._doing[index]
        request = self._resets[index] if buffer is None else self._requests[index][buffer]
        try:
            self.workers[index].begin_call(request)
        except FAULTS as error:
            self._lose(index, error)

    def _take(self, index: int) -> Any:
        """What a worker answers, or _NOT_YET where another one has to take its place first."""
        try:
            if index in self._replacing.lost:
                self._put_in_place(index)
                return _NOT_YET
            answer = self.workers[index].finish_call()
        except FAULTS as error:
            self._lose(index, error)
            return _NOT_YET
        except RookeryError:
            self._under_way.discard(index)
            raise
        self._under_way.discard(index)
        return answer

    def _put_in_place(self, index: int) -> None:
        """Wait for a new worker, and tell it what the lost one had to do."""
        try:
            self._replacing.install(index)
        except FAULTS as error:
            self._lose(index, error)
        self._ask(index)

    def _lose(self, index: int, error: WorkerError) -> None:
        """Have a worker that has failed replaced; where that is not allowed, raise the error."""
        try:
            if not self._restarts:
                raise error
            self._replacing.lose(index, error, self._doing[index])
        except WorkerError:
            self._under_way.discard(index)
            raise

    def _finish(self, index: int) -> Any:
        while (answer := self._take(index)) is _NOT_YET:
            pass
        return answer

    def _finish_all(self) -> list[Any]:
        """Wait for all workers, whatever happens; then raise the first error, if there is one."""
        indices = range(len(self.workers))
        return _raise_first([_outcome(partial(self._finish, index)) for index in indices])


def _outcome(finish: Callable[[], Any]) -> Any:
    """What is returned, or the error."""
    try:
        return finish()
    except RookeryError as error:
        return error


def _raise_first(answers: list[Any]) -> list[Any]:
    """Raise the first error among answers, if there is one."""
    for answer in answers:
        if isinstance(answer, RookeryError):
            raise answer
    return answers


def _end(
    owner_pid: int,
    venv: ProcessVectorEnv,
    workers: Sequence[WorkerBackend],
    under_way: set[int],
    stop: Any,
    block: SharedBlock,
) -> None:
    """Have the workers leave what they are doing, then close their envs."""
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    stop[0] = 1
    block.close()
    for worker in workers:
        worker.call_between_waits(lambda: None)  # what is to be left is being left
    is_over = False
    try:
        is_over = _all_over(workers, under_way)
    finally:
        under_way.clear()
        if is_over:
            venv.close()
        else:
            # A worker that still has something to say would say it now, in place of having closed.
            with suppress(RookeryError):
                venv.close(terminate=True)


def _all_over(workers: Sequence[WorkerBackend], under_way: set[int]) -> bool:
    """Wait a moment for those that are to stop, and say whether all have.

    After a Ctrl-C a worker can be under way by our books alone: nothing will come from it.
    """
    deadline = time.perf_counter() + _STOP_GRACE_S
    for index in sorted(under_way):
        try:
            workers[index].finish_call(deadline)
        except NotFinishedError:
            return False
        except RookeryError:  # stopped, as it was told, or it failed where nobody reads any more
            pass
    return True
