"""Contenders by turns, in another order in every round, each time in a fresh process."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rookery.bench.sample import Order, SampleFailed, take


@dataclass
class Measured:
    """What was measured of one order.

    Attributes:
        order: what was asked.
        samples: by number of the round.
        failure: why it was given up; empty if it was not.
    """

    order: Order
    samples: dict[int, dict[str, Any]] = field(default_factory=dict)
    failure: str = ""

    def values(self, name: str = "steps_per_second") -> dict[int, float]:
        """One number of the samples, by round."""
        return {turn: float(sample[name]) for turn, sample in self.samples.items()}


def shuffled(count: int, rounds: int, seed: int) -> list[list[int]]:
    """The order of so many things in each round."""
    rng = random.Random(seed)
    return [rng.sample(range(count), count) for _ in range(rounds)]


def measure_in_rounds(
    orders: Sequence[Order],
    rounds: int,
    timeout_s: float,
    seed: int = 0,
    tell: Callable[[Measured, dict[str, Any] | None], None] = lambda *_: None,
    take: Callable[[Order, float], dict[str, Any]] = take,
    into: list[Measured] | None = None,
) -> list[Measured]:
    """Measure all orders once in every round; one that has failed is not tried again.

    Args:
        orders: what to measure.
        rounds: how often.
        timeout_s: a sample that takes longer is a failure.
        seed: of the order in each round.
        tell: is told of each sample, or None where there was none.
        take: makes one.
        into: takes what is measured, also if Ctrl-C ends it.
    """
    measured = [] if into is None else into
    measured[:] = [Measured(order) for order in orders]
    for turn, places in enumerate(shuffled(len(orders), rounds, seed)):
        for each in (measured[place] for place in places):
            sample = None
            if not each.failure:
                try:
                    sample = each.samples[turn] = take(each.order, timeout_s)
                except SampleFailed as error:
                    each.failure = str(error)
            tell(each, sample)
    return measured
