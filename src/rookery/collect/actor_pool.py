"""ActorPool: workers in which copies of one policy act, and the rollouts that they fill."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import connection
from typing import Any

from rookery.collect.actor import ActorSpec, Report, install_actor
from rookery.collect.rollout_buffers import RolloutBuffers, RolloutShape
from rookery.errors import RookeryError
from rookery.memory import SharedBlock
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.vector.process import ProcessVectorEnv
from rookery.worker.carrier import WorkerCarrier
from rookery.worker.protocol import INSTALL, NotFinishedError

_LOOK_S = 0.1  # how often a wait for whoever is first looks after those that are slow
_STOP_GRACE_S = 5.0


class ActorPool:
    """Has workers fill rollouts, one at a time each, and waits for them.

    Args:
        venv: its workers are used; it is closed with the pool.
        policy: every worker gets a copy.
        shape: of the rollouts.
        info_keys: names of the numbers to keep of the infos with which episodes end.
        between_waits: called ten times a second while workers are waited for; what it raises ends
            the wait.

    Attributes:
        workers: who fills them.
        policy_s: seconds that a worker spent otherwise than stepping, in the mean.
        env_s: seconds that a worker spent stepping, in the mean.
    """

    def __init__(
        self,
        venv: ProcessVectorEnv,
        policy: Policy,
        shape: RolloutShape,
        between_waits: Callable[[], None],
        info_keys: tuple[str, ...] = (),
    ) -> None:
        self.workers: tuple[WorkerCarrier, ...] = venv.workers
        self.shape = shape
        self.policy_s = self.env_s = 0.0
        self._policy = policy
        self._between_waits = between_waits
        self._under_way: set[int] = set()  # workers that are filling a rollout
        self._rollouts: dict[tuple[int, int, int], Rollout] = {}  # by buffer and envs
        self._buffers = RolloutBuffers(shape, policy.model)
        block = SharedBlock(self._buffers.size_bytes)
        try:
            self._buffers.map(block.memory)
            self._install(block, info_keys)
        finally:
            block.close()
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), venv, self.workers, self._under_way, self._buffers.stop
        )

    def _install(self, block: SharedBlock, info_keys: tuple[str, ...]) -> None:
        ids = [worker.env_ids for worker in self.workers]
        specs = [
            ActorSpec(self.shape, self._policy, i.start, i.stop, stream, info_keys)
            for stream, i in enumerate(ids)
        ]
        requests = [
            worker.request(INSTALL, install_actor, spec)
            for worker, spec in zip(self.workers, specs, strict=True)
        ]
        for worker in self.workers:
            worker.call_between_waits(self._between_waits)
            worker.lend(block)
            worker.find_actions(self._buffers.last_action)
        self._begin_all(requests)
        self._finish_all()
        for worker in self.workers:  # from now on: there is nothing to leave in good order yet
            worker.call_between_waits(self._between_waits)
        # Pickled once: every rollout repeats one of a few requests.
        self._requests = [
            [worker.request("collect", buffer) for buffer in range(self.shape.num_buffers)]
            for worker in self.workers
        ]

    def publish(self) -> None:
        """Have the workers act with the policy's present weights, from their next rollout on."""
        self._buffers.weights.publish(self._policy.model, self._policy.current_version())

    def reset(self, seeds: Sequence[int | None]) -> None:
        """Reset all envs; what they show is where the first buffer goes on from."""
        last = self.shape.num_buffers * self.shape.num_steps - 1
        requests = []
        for worker in self.workers:
            ids = list(worker.env_ids)
            own = list(seeds[ids[0] : ids[-1] + 1])
            worker.note_seeds(own, None)
            requests.append(worker.request("reset", last, ids, own, [None] * len(ids)))
        self._begin_all(requests)
        self._finish_all()

    def begin(self, index: int, buffer: int) -> None:
        """Have a worker fill a buffer."""
        self._under_way.add(index)
        self.workers[index].begin_call(self._requests[index][buffer])

    def finish(self, index: int) -> Report:
        """Wait for a worker that fills a buffer.

        Raises:
            EnvFailed, WorkerDied, WorkerTimeout: when it failed.
        """
        report: Report = self._finish(index)
        self.policy_s += report.policy_s / len(self.workers)
        self.env_s += report.env_s / len(self.workers)
        return report

    def fill(self, buffer: int) -> list[Report]:
        """Have all workers fill a buffer, and wait for them."""
        self._begin_all([requests[buffer] for requests in self._requests])
        reports: list[Report] = self._finish_all()
        self.policy_s += sum(report.policy_s for report in reports) / len(reports)
        self.env_s += sum(report.env_s for report in reports) / len(reports)
        return reports

    def wait(self) -> list[int]:
        """Wait until at least one worker has something to say, and return which have.

        Raises:
            WorkerDied, WorkerTimeout: when one of them failed meanwhile.
        """
        pipes: dict[Any, int] = {
            self.workers[index].message_pipe: index for index in self._under_way
        }
        while True:
            ready = connection.wait(list(pipes), _LOOK_S)
            if ready:
                return [pipes[pipe] for pipe in ready]
            self._between_waits()
            for index in self._under_way:
                self.workers[index].check()

    def rollout_of(self, buffer: int, envs: slice) -> Rollout:
        """The rollout of some envs, as views; see `RolloutBuffers.rollout`."""
        # Made once: 60 us that with rollouts of a few steps are spent thousands of times a second.
        place = buffer, envs.start, envs.stop
        if place not in self._rollouts:
            self._rollouts[place] = self._buffers.rollout(buffer, envs)
        return replace(self._rollouts[place])

    def close(self) -> None:
        """Stop the workers where they are, and close the envs."""
        self._finalizer()
        # Shared memory and semaphores go with the last reference to them.
        del self.workers, self._requests, self._rollouts, self._buffers

    def _begin_all(self, requests: Sequence[Any]) -> None:
        for index, (worker, request) in enumerate(zip(self.workers, requests, strict=True)):
            self._under_way.add(index)
            worker.begin_call(request)

    def _finish(self, index: int) -> Any:
        try:
            answer = self.workers[index].finish_call()
        except RookeryError:
            self._under_way.discard(index)
            raise
        self._under_way.discard(index)
        return answer

    def _finish_all(self) -> list[Any]:
        """Wait for all workers, whatever happens; then raise the first error, if there is one."""
        answers: list[Any] = []
        for index in range(len(self.workers)):
            try:
                answers.append(self._finish(index))
            except RookeryError as error:
                answers.append(error)
        for answer in answers:
            if isinstance(answer, RookeryError):
                raise answer
        return answers


def _end(
    owner_pid: int,
    venv: ProcessVectorEnv,
    workers: Sequence[WorkerCarrier],
    under_way: set[int],
    stop: Any,
) -> None:
    """Have the workers leave what they are doing, then close their envs."""
    if os.getpid() != owner_pid:  # a forked copy of the owner has no say in this
        return
    stop[0] = 1
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


def _all_over(workers: Sequence[WorkerCarrier], under_way: set[int]) -> bool:
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
