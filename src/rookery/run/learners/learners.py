"""The learners of a run, as the first of them sees the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from rookery.env import registrations
from rookery.errors import LearnerDied
from rookery.learn.parallel.peers import ALONE, PeerLost, Peers
from rookery.rollout import Rollout
from rookery.rollout.join import side_by_side
from rookery.run.learners.other_learner import Order, Task, without_observations
from rookery.run.learners.share import Share
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName

ENDING_S = 10.0
REASON_S = 60.0  # for a learner to say why it ends


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


class StartedLearners(SeveralLearners):
    """Several learners, of which this is the first and starts the others.

    Args:
        plan: of the run.
        store: by which they find each other, see `ProcessGroup`.
    """

    def __init__(self, plan: RunPlan, store: str) -> None:
        from rookery.learn.parallel.distributed import ProcessGroup

        settings = plan.settings
        super().__init__(settings.num_envs, ProcessGroup(0, settings.num_learners, store))

    def start_others(self, plan: RunPlan, collector: CollectorName, policy_seed: int) -> None:
        """Start each learner but the first; if one cannot be started, all end.

        Args:
            plan: of the run.
            collector: who collects.
            policy_seed: of the run's policy.
        """
        size, num_envs, store = self.share.size, plan.settings.num_envs, self.peers.store
        try:
            for rank in range(1, size):
                share, seed = Share(rank, size, num_envs), seed_of(policy_seed, rank)
                self.start(Task(plan, collector, share, seed, store, registrations.collect()))
        except BaseException:
            self.close()
            raise

    def start(self, task: Task) -> None:
        """Start the learner of a task."""
        raise NotImplementedError

    def raise_died(self, rank: int, where: str, how: str, cause: Exception | None) -> NoReturn:
        """Raise what has become of a learner.

        Args:
            rank: its own.
            where: it was, in brackets; may be empty.
            how: it ended, where no exception of its own tells.
            cause: that exception.
        """
        who = f"Learner {rank} of {self.share.size}{where}"
        if cause is not None:
            raise LearnerDied(f"{who} failed: {cause}") from cause
        raise LearnerDied(
            f"{who} {how}. The run can be resumed with any number of learners (num_learners)"
        )


def seed_of(seed: int, rank: int) -> int:
    """The seed of the actions that another learner's policy draws."""
    return int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
