"""The other learners of a run, as seen by the first learner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from rookery.env import registrations
from rookery.errors import LearnerDied
from rookery.learn.parallel.peers import ALONE, PeerLost, Peers
from rookery.rollout import Rollout
from rookery.rollout.rollout import side_by_side
from rookery.run.learners.other_learner import LearnerOrder, LearnerTask, without_observations
from rookery.run.learners.share import Share
from rookery.run.plan import RunPlan
from rookery.run.settings import CollectorName

ENDING_S = 10.0
REASON_S = 60.0  # time for a failing learner to report its error


class Learners:
    """A single learner, and the interface that several learners implement.

    Args:
        num_envs: number of envs of the run.
        peers: the learners of the run.

    Attributes:
        peers: the learners of the run.
        share: the envs of this learner.
    """

    def __init__(self, num_envs: int, peers: Peers = ALONE) -> None:
        self.peers = peers
        self.share = Share(peers.rank, peers.size, num_envs)

    @property
    def are_several(self) -> bool:
        """True if there are other learners."""
        return self.share.size > 1

    def meet(self) -> None:
        """Wait until all other learners have built their envs."""

    def bring(self, state: Any) -> None:
        """Send the state of this learner to all others; see `take_over`."""

    def begin(self, progress: float) -> None:
        """Start an update in all other learners."""

    def everybodys(self, rollout: Rollout) -> Rollout:
        """Join the rollouts of all learners, without observations.

        A single learner returns its own rollout unchanged.
        """
        return rollout

    def end(self, result: Any = None) -> None:
        """Send the end of the run and its result to all other learners."""

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Raise the loss of another learner within the block as `LearnerDied`."""
        try:
            yield
        except PeerLost as error:
            self.lost(error)

    def lost(self, error: Exception) -> NoReturn:
        """Raise the reason for the loss of another learner.

        Raises:
            LearnerDied: always, with the learner's rank and error if they are known.
        """
        raise LearnerDied(f"Another learner is lost: {error}") from error

    def close(self) -> None:
        """Stop the other learners; may be called twice."""


class SeveralLearners(Learners):
    """The first of several learners.

    Args:
        num_envs: number of envs of the run.
        peers: the learners of the run, not connected yet.
    """

    peers: Any  # a ProcessGroup, which needs torch

    def __init__(self, num_envs: int, peers: Any) -> None:
        super().__init__(num_envs, peers)
        self._is_asked = False  # the others are in an update that this one has not finished
        self._is_connected = False
        self._is_over = False  # the end of the run was sent to the others

    def meet(self) -> None:
        self.peers.connect()
        self._is_connected = True

    def bring(self, state: Any) -> None:
        with self.noticing():
            self.peers.hear(state)

    def begin(self, progress: float) -> None:
        if not self._is_asked:  # else the others still are in an update that was interrupted here
            self._is_asked = True
            with self.noticing():
                self.peers.hear(LearnerOrder(progress))

    def everybodys(self, rollout: Rollout) -> Rollout:
        found = self.peers.gather(without_observations(rollout, self.share))
        self._is_asked = False
        return side_by_side(found)

    def end(self, result: Any = None) -> None:
        if self._is_connected and not self._is_over and not self._is_asked:
            self._is_over = True
            self.peers.hear(LearnerOrder(None, result))

    def lost(self, error: Exception) -> NoReturn:
        self._is_over = True
        super().lost(error)

    def close(self) -> None:
        try:
            self.end()
        except PeerLost:  # a learner exited before the end of the run
            self._is_over = True
        self.peers.close()  # learners that are in an update notice this


class StartedLearners(SeveralLearners):
    """The first of several learners, which starts the others.

    Args:
        plan: plan of the run.
        store: rendezvous file or address, see `ProcessGroup`.
    """

    def __init__(self, plan: RunPlan, store: str) -> None:
        from rookery.learn.parallel.distributed import ProcessGroup

        settings = plan.settings
        super().__init__(settings.num_envs, ProcessGroup(0, settings.num_learners, store))

    def start_others(self, plan: RunPlan, collector: CollectorName, policy_seed: int) -> None:
        """Start all other learners; if one cannot be started, stop all.

        Args:
            plan: plan of the run.
            collector: name of the collector.
            policy_seed: seed of the run's policy.
        """
        size, num_envs, store = self.share.size, plan.settings.num_envs, self.peers.store
        try:
            for rank in range(1, size):
                share, seed = Share(rank, size, num_envs), seed_of(policy_seed, rank)
                self.start(
                    LearnerTask(plan, collector, share, seed, store, registrations.collect())
                )
        except BaseException:
            self.close()
            raise

    def start(self, task: LearnerTask) -> None:
        """Start the learner of a task."""
        raise NotImplementedError

    def raise_died(self, rank: int, where: str, how: str, cause: Exception | None) -> NoReturn:
        """Raise `LearnerDied` for a learner.

        Args:
            rank: rank of the learner.
            where: its process or node, in brackets; may be empty.
            how: how the process ended, if it reported no exception.
            cause: the exception that it reported, or None.
        """
        who = f"Learner {rank} of {self.share.size}{where}"
        if cause is not None:
            raise LearnerDied(f"{who} failed: {cause}") from cause
        raise LearnerDied(
            f"{who} {how}. The run can be resumed with any number of learners (num_learners)"
        )


def seed_of(seed: int, rank: int) -> int:
    """Derive the policy seed of another learner."""
    return int(np.random.SeedSequence([seed, rank]).generate_state(1)[0])
