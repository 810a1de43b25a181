"""Means over everybody's rows, where several learn together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rookery.learn.parallel.peers import Peers


class Moments(NamedTuple):
    """How many numbers there are, their mean, and the sum of their squared distances from it."""

    num_rows: int
    mean: float
    squares: float

    @classmethod
    def of(cls, x: Tensor) -> Moments:
        """Those of float32 ``[N]``."""
        if not len(x):
            return cls(0, 0.0, 0.0)
        mean = float(x.mean())
        return cls(len(x), mean, float((x - mean).square().sum()))


def together(parts: Sequence[Moments]) -> Moments:
    """The moments of all numbers (Chan, Golub and LeVeque 1979, equation 2.1)."""
    count = sum(part.num_rows for part in parts)
    mean = sum(part.num_rows * part.mean for part in parts) / max(count, 1)
    squares = sum(part.squares + part.num_rows * (part.mean - mean) ** 2 for part in parts)
    return Moments(count, mean, squares)


def average(
    peers: Peers, gradient: Tensor, scalars: dict[str, Tensor], num_rows: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Bring gradients and numbers that are means over rows to means over everybody's rows.

    Args:
        peers: those who learn.
        gradient: float32 ``[size]``, of a loss that is a mean over ``num_rows`` rows.
        scalars: numbers that are means, too; everybody's have the same names.
        num_rows: of this learner; none is fine.
    """
    own = torch.cat([gradient, torch.stack([x.to(gradient) for x in scalars.values()])])
    # Means of no rows are not numbers.
    packed = own * num_rows if num_rows else torch.zeros_like(own)
    packed = torch.cat([packed, packed.new_tensor([float(num_rows)])])
    peers.add(packed)
    packed = packed[:-1] / packed[-1]
    means = dict(zip(scalars, packed[len(gradient) :], strict=True))
    return packed[: len(gradient)], means
