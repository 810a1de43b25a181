"""Learners that train the same weights together, each with its part of the envs.

All learners take the same gradient steps, on the mean gradient over the rows of all of them, so
their weights stay equal without being sent. Decisions, such as skipping a step, are based on
numbers that all learners have, so that all decide in the same way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
Ints = npt.NDArray[np.int64]


class PeerLost(Exception):
    """Another learner has exited or does not respond."""


class Peers(ABC):
    """The learners of a run, seen from one of them.

    All learners must make the same calls in the same order. Each call waits for all of them.

    Attributes:
        rank: Number of this learner, from 0.
        size: Number of learners.
    """

    rank: int
    size: int

    @abstractmethod
    def add(self, tensor: Tensor) -> None:
        """Replace ``tensor`` by the sum over all learners, in place."""

    @abstractmethod
    def gather(self, value: T) -> list[T]:
        """Return the ``value`` of each learner by rank; any object that can be pickled."""


class Alone(Peers):
    """The only learner of a run."""

    rank, size = 0, 1

    def add(self, tensor: Tensor) -> None:
        pass

    def gather(self, value: T) -> list[T]:
        return [value]


ALONE = Alone()


def any_of(peers: Peers, condition: Any) -> bool:
    """Return True if the condition is true for any learner."""
    return any(peers.gather(bool(condition)))


class SharedPieces:
    """Numbers of the pieces of all learners' rollouts, and which of these belong to this learner.

    The pieces have the numbers that a single learner with all envs would give them: by time, and by
    env within a time.

    Args:
        peers: The learners.
        kept: bool ``[K, B]``, True for the pieces of this learner that are learned from: K pieces
            in time for each of B envs.
    """

    def __init__(self, peers: Peers, kept: npt.NDArray[np.bool_]) -> None:
        parts = peers.gather(kept)
        first_env = sum(part.shape[1] for part in parts[: peers.rank])
        is_own = np.zeros(sum(part.shape[1] for part in parts), np.bool_)
        is_own[first_env : first_env + kept.shape[1]] = True
        all_kept = np.concatenate(parts, axis=1)
        owners = np.broadcast_to(is_own, all_kept.shape)[all_kept]
        self.count = len(owners)
        self._place = np.where(owners, np.cumsum(owners) - 1, -1)

    def own(self, chosen: Ints) -> Ints:
        """Return this learner's pieces among ``chosen``, numbered without the other learners."""
        places = self._place[chosen]
        return np.asarray(places[places >= 0], np.int64)


# ---------------------------------------------------------------- means over all learners


class Moments(NamedTuple):
    """The count of some numbers, their mean, and the sum of their squared distances from it."""

    num_rows: int
    mean: float
    squares: float

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """Compute the moments of float32 ``[N]``."""
        if not len(x):
            return cls(0, 0.0, 0.0)
        mean = float(x.mean())
        return cls(len(x), mean, float((x - mean).square().sum()))


def together(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all numbers (Chan, Golub and LeVeque 1979, equation 2.1)."""
    count = sum(part.num_rows for part in parts)
    mean = sum(part.num_rows * part.mean for part in parts) / max(count, 1)
    squares = sum(part.squares + part.num_rows * (part.mean - mean) ** 2 for part in parts)
    return Moments(count, mean, squares)


def average(
    peers: Peers, gradient: Tensor, scalars: dict[str, Tensor], num_rows: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Turn a gradient and numbers that are means over rows into means over all learners' rows.

    Args:
        peers: The learners.
        gradient: float32 ``[size]``, of a loss that is a mean over ``num_rows`` rows.
        scalars: Numbers that are means over the same rows; all learners use the same names.
        num_rows: Number of rows of this learner, which may be 0.
    """
    import torch  # this module is imported without torch, too

    own = torch.cat([gradient, torch.stack([x.to(gradient) for x in scalars.values()])])
    # The mean of no rows is NaN.
    packed = own * num_rows if num_rows else torch.zeros_like(own)
    packed = torch.cat([packed, packed.new_tensor([float(num_rows)])])
    peers.add(packed)
    packed = packed[:-1] / packed[-1]
    means = dict(zip(scalars, packed[len(gradient) :], strict=True))
    return packed[: len(gradient)], means
