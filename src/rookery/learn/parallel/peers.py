"""Learners that learn the same weights together, each from envs of its own.

All of them make the same gradient steps, on the mean of what each has computed from its own rows,
so their weights stay equal without ever being sent. What one decides alone, how many steps to make
or whether to skip one, all decide alike, as they decide by numbers that all have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Ints = npt.NDArray[np.int64]


class PeerLost(Exception):
    """Another learner is no longer there, or does not go on."""


class Peers(ABC):
    """The learners of a run, as one of them sees them.

    All must make the same calls in the same order; each call waits for all.

    Attributes:
        rank: which one this is, from 0.
        size: how many there are.
    """

    rank: int
    size: int

    @abstractmethod
    def add(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by the sum of everybody's, in place."""

    @abstractmethod
    def gather(self, value: T) -> list[T]:
        """Everybody's ``value``, in order of rank; any object that can be pickled."""


class Alone(Peers):
    """One learner has no others."""

    rank, size = 0, 1

    def add(self, tensor: Tensor) -> None:
        pass

    def gather(self, value: T) -> list[T]:
        return [value]


ALONE = Alone()


class SharedPieces:
    """Pieces of everybody's rollouts, and which of them are one's own.

    They are numbered as one learner would number them that had all envs: by time, and by env
    within.

    Args:
        peers: those who learn.
        kept: bool ``[K, B]``, which of one's own pieces are learned from: K after another, B envs.
    """

    def __init__(self, peers: Peers, kept: npt.NDArray[np.bool_]) -> None:
        everybodys = peers.gather(kept)
        first_env = sum(part.shape[1] for part in everybodys[: peers.rank])
        is_own = np.zeros(sum(part.shape[1] for part in everybodys), np.bool_)
        is_own[first_env : first_env + kept.shape[1]] = True
        all_kept = np.concatenate(everybodys, axis=1)
        owners = np.broadcast_to(is_own, all_kept.shape)[all_kept]
        self.count = len(owners)
        self._place = np.where(owners, np.cumsum(owners) - 1, -1)

    def own(self, chosen: Ints) -> Ints:
        """Of the pieces ``chosen``, one's own, as they are numbered without the others."""
        places = self._place[chosen]
        return np.asarray(places[places >= 0], np.int64)


def any_of(peers: Peers, condition: Any) -> bool:
    """Whether it holds for anybody."""
    return any(peers.gather(bool(condition)))
