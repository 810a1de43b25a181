"""Samples of all contenders in rounds, each in a new process and in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rookery.bench.sample import Order, SampleFailed, take


@dataclass
class Measured:
    """The samples of one order.

    Attributes:
        order: the order.
        samples: result of each sample, by number of the round.
        failure: reason why sampling stopped; empty without a failure.
    """

    order: Order
    samples: dict[int, dict[str, Any]] = field(default_factory=dict)
    failure: str = ""

    def values(self, name: str = "steps_per_second") -> dict[int, float]:
        """Return one number of each sample, by round."""
        return {turn: float(sample[name]) for turn, sample in self.samples.items()}


def shuffled(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Return a random permutation of ``range(count)`` for each round."""
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
    """Measure all orders once in every round; failed orders are not repeated.

    Args:
        orders: orders to measure.
        rounds: number of rounds.
        timeout_s: longest time of a sample in seconds; longer ones are failures.
        seed: seed of the random order in each round.
        tell: function that is called with each sample, or None after a failure.
        take: function that takes one sample.
        into: list that receives the results, also if Ctrl-C interrupts; None for a new list.
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
