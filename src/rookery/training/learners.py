"""The learners of a run, as the first of them sees the others."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import loads
from typing import Any, NamedTuple, NoReturn

import numpy as np

from rookery.env import registrations
from rookery.env.travel import by_value
from rookery.errors import ConfigError, LearnerDied
from rookery.learn.peers import ALONE, PeerLost, Peers
from rookery.rollout import Rollout
from rookery.rollout.join import side_by_side
from rookery.training.algorithms import BuiltIn, collector_for
from rookery.training.other_learner import (
    LEFT_ALONE,
    Order,
    Task,
    follow,
    run,
    without_observations,
)
from rookery.training.plan import RunPlan
from rookery.training.settings import CollectorName
from rookery.training.share import Share
from rookery.worker.cpus import usable_cpus
from rookery.worker.launch import start_process
from rookery.worker.pipes import PipeEnd, wait

_ENDING_S = 10.0
_REASON_S = 60.0  # for a process to say why it ends


class Learners:
    """One learner alone, and what several have in common.

    Args:
        num_envs: of the run.
        peers: those who learn together.

    Attributes:
        peers: as given.
        share: the envs of this learner.
    """

    def __init__(self, num_envs: int, peers: Peers = ALONE) -> None:
        self.peers = peers
        self.share = Share(peers.rank, peers.size, num_envs)

    @property
    def are_several(self) -> bool:
        """Whether there are others."""
        return self.share.size > 1

    def meet(self) -> None:
        """Wait until all others have built their envs."""

    def bring(self, state: Any) -> None:
        """Have all others stand where this one stands; see `take_over`."""

    def begin(self, progress: float) -> None:
        """Have all others collect and learn, as this one is about to."""

    def everybodys(self, rollout: Rollout) -> Rollout:
        """Put all rollouts of an update side by side; observations are left out.

        One alone has its own, with all that is in it.
        """
        return rollout

    def end(self, result: Any = None) -> None:
        """Say that the run is over, and what it has come to."""

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Within the block, the loss of another learner is told as `LearnerDied`."""
        try:
            yield
        except PeerLost as error:
            self.lost(error)

    def lost(self, error: Exception) -> NoReturn:
        """Raise what has become of another learner, which ``error`` tells is lost.

        Raises:
            LearnerDied: with its rank, and why.
        """
        raise LearnerDied(f"Another learner is lost: {error}") from error

    def close(self) -> None:
        """End the others; twice is fine."""


class SeveralLearners(Learners):
    """Several learners, of which this is the first.

    Args:
        num_envs: of the run.
        peers: those who learn together, not yet connected.
    """

    peers: Any  # a ProcessGroup, which needs torch

    def __init__(self, num_envs: int, peers: Any) -> None:
        super().__init__(num_envs, peers)
        self._is_asked = False  # whether others are in an update that this one has yet to make
        self._is_connected = False
        self._is_over = False  # whether others know that there is nothing more to do

    def meet(self) -> None:
        self.peers.connect()
        self._is_connected = True

    def bring(self, state: Any) -> None:
        with self.noticing():
            self.peers.hear(state)

    def begin(self, progress: float) -> None:
        if not self._is_asked:  # else an interruption cut the update short that they are in
            self._is_asked = True
            with self.noticing():
                self.peers.hear(Order(progress))

    def everybodys(self, rollout: Rollout) -> Rollout:
        found = self.peers.gather(without_observations(rollout, self.share))
        self._is_asked = False
        return side_by_side(found)

    def end(self, result: Any = None) -> None:
        if self._is_connected and not self._is_over and not self._is_asked:
            self._is_over = True
            self.peers.hear(Order(None, result))

    def lost(self, error: Exception) -> NoReturn:
        self._is_over = True
        super().lost(error)

    def close(self) -> None:
        try:
            self.end()
        except PeerLost:  # it has ended before the run
            self._is_over = True
        self.peers.close()  # which others notice that are in an update


class _Other(NamedTuple):
    rank: int
    process: BaseProcess
    pipe: PipeEnd


class LearnersHere(SeveralLearners):
    """Several learners in processes of this machine, which this one starts.

    Args:
        plan: of the run.
        collector: who collects.
        policy_seed: of the run's policy.
    """

    def __init__(self, plan: RunPlan, collector: CollectorName, policy_seed: int) -> None:
        from rookery.learn.distributed import ProcessGroup

        settings = plan.settings
        size, num_envs = settings.num_learners, settings.num_envs
        self._folder = Path(tempfile.mkdtemp(prefix="rookery-learners-"))
        self._others: list[_Other] = []
        store = str(self._folder / "store")
        super().__init__(num_envs, ProcessGroup(0, size, store))
        try:
            for task in tasks_of_others(plan, collector, policy_seed, store):
                rank = task.share.rank
                here, there = Pipe()
                with there:
                    process = start_process(
                        "spawn", max(usable_cpus() // size, 1), run, (there, by_value(task)),
                        f"rookery learner {rank}",
                    )  # fmt: skip
                self._others.append(_Other(rank, process, here))
        except BaseException:
            self.close()
            raise

    def meet(self) -> None:
        for other in self._others:
            wait([other.pipe, other.process.sentinel])
            self._require_ready(other)
        for other in self._others:
            other.pipe.send_bytes(b"")
        super().meet()

    def _require_ready(self, other: _Other) -> None:
        try:
            said = other.pipe.recv_bytes() if wait([other.pipe], 0) else None
        except EOFError:
            said = None
        if said is None:
            self._died(other, None)
        if said:
            self._died(other, said)

    def lost(self, error: Exception) -> NoReturn:
        self._is_over = True
        waiting: dict[Any, _Other] = {other.process.sentinel: other for other in self._others}
        while waiting and (ended := wait(list(waiting), _REASON_S)):
            for sentinel in ended:
                other = waiting.pop(sentinel)
                said = _last_word(other.pipe)
                if said or other.process.exitcode != LEFT_ALONE:
                    self._died(other, said)
        super().lost(error)

    def _died(self, other: _Other, failure: bytes | None) -> NoReturn:
        who = f"Learner {other.rank} of {self.share.size} (process {other.process.pid})"
        if failure:
            cause = loads(failure).error()
            raise LearnerDied(f"{who} failed: {cause}") from cause
        other.process.join(_ENDING_S)
        code = other.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended: {code}"
        raise LearnerDied(
            f"{who} {how}. The run can be resumed with any number of learners (num_learners)"
        )

    def close(self) -> None:
        super().close()
        for other in self._others:
            other.pipe.close()
        for other in self._others:
            other.process.join(_ENDING_S)
            if other.process.is_alive():
                other.process.kill()
                other.process.join()
            other.process.close()
        self._others.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


def _last_word(pipe: PipeEnd) -> bytes | None:
    try:
        return pipe.recv_bytes() if wait([pipe], 0) else None
    except (EOFError, OSError):
        return None


def open_learners(plan: RunPlan, collector: CollectorName, policy_seed: int) -> Learners:
    """Start the other learners of a run, if there are to be any.

    Raises:
        ConfigError: there cannot be so many, or not with this algorithm.
    """
    place = torchrun_place()
    if is_other_learner():
        raise ConfigError(
            "torchrun has started this process as another learner, which has no Trainer of its "
            "own: have all of them call rookery.train, or run rookery train"
        )
    size = num_learners(plan)
    if size == 1:
        return Learners(plan.settings.num_envs)
    if place is None:
        if plan.settings.cluster is not None:
            from rookery.training.cluster_learners import LearnersOnCluster

            return LearnersOnCluster(plan, collector, policy_seed)
        return LearnersHere(plan, collector, policy_seed)
    from rookery.learn.distributed import ProcessGroup

    return SeveralLearners(plan.settings.num_envs, ProcessGroup(0, size, None))


def learn_along(plan: RunPlan) -> Any:
    """Be another learner that torchrun has started; return what the run has come to."""
    place = torchrun_place()
    assert place is not None
    share = Share(place[0], num_learners(plan), plan.settings.num_envs)
    collector = collector_for(plan.algorithm, share.settings(plan.settings))
    seed = _seed_of(plan.settings.seed, share.rank)
    return follow(Task(plan, collector, share, seed, None))


def is_other_learner() -> bool:
    """Whether torchrun has started this process, and not as the first of them."""
    place = torchrun_place()
    return place is not None and place[0] > 0


def torchrun_place() -> tuple[int, int] | None:
    """Rank and number of processes if torchrun has started this one; else None."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def num_learners(plan: RunPlan) -> int:
    """How many learners a run has: as many as torchrun has started, else those of its settings.

    Raises:
        ConfigError: there cannot be so many, or not with this algorithm.
    """
    place, size = torchrun_place(), plan.settings.num_learners
    if place is not None:
        if size not in (1, place[1]):
            raise ConfigError(
                f"num_learners is {size}, but torchrun has started {place[1]}; leave it out"
            )
        size = place[1]
    if size > 1:
        _require_several(plan, size)
    return size


def tasks_of_others(
    plan: RunPlan, collector: CollectorName, policy_seed: int, store: str
) -> Iterator[Task]:
    """What each learner but the first has to do.

    Args:
        plan: of the run.
        collector: who collects.
        policy_seed: of the run's policy.
        store: by which they find each other, see `ProcessGroup`.
    """
    size = plan.settings.num_learners
    for rank in range(1, size):
        share, seed = Share(rank, size, plan.settings.num_envs), _seed_of(policy_seed, rank)
        yield Task(plan, collector, share, seed, store, registrations.collect())


def _seed_of(seed: int, rank: int) -> int:
    """The seed of the actions that another learner's policy draws."""
    return int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])


def _require_several(plan: RunPlan, size: int) -> None:
    if not isinstance(plan.algorithm, BuiltIn):
        raise ConfigError(
            f"num_learners is {size}, but only the algorithms of this library "
            "learn together; an algorithm of your own has one learner"
        )
    if plan.settings.num_envs < size:
        raise ConfigError(
            f"num_envs is {plan.settings.num_envs}, but each of {size} learners needs one at least"
        )
