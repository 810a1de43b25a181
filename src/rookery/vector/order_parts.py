"""What an order to envs means for each carrier: its envs, their numbers and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rookery.errors import UsageError
from rookery.vector.carrier import Carrier
from rookery.vector.options import Options
from rookery.vector.pending import Ids
from rookery.worker.orders import NO_SEED, SEED_IN_MESSAGE, Order

MOST_SEED = 2**63  # that fits the word of an order


def part_of(order: Order, carrier: Carrier) -> Order | None:
    """An order's part for the envs of one carrier; None if there is none."""
    first, last = carrier.env_ids.start, carrier.env_ids.stop
    if order.env_ids is None:
        if type(order.seeds) is int:
            return order
        return order._replace(seeds=order.seeds[first:last])
    kind, buffer, numbers, ids, seeds = order
    inside = ((ids >= first) & (ids < last)).nonzero()[0]
    if not len(inside):
        return None
    if type(seeds) is not int:
        seeds = seeds[ids[inside]]
    if type(numbers) is not int:
        numbers = numbers[inside]
    return Order(kind, buffer, numbers, ids[inside], seeds)


def seed_words(seeds: list[int | None], options: Options) -> Ids:
    """The words that tell the envs their seeds, or that these come in a message."""
    if options is not None or any(_is_large(seed) for seed in seeds):
        return np.full(len(seeds), SEED_IN_MESSAGE)
    return np.array([NO_SEED if seed is None else seed for seed in seeds], np.int64)


def prepared_resets(
    carriers: Sequence[Carrier],
    seeds: list[int | None],
    options: Options,
    mask: list[bool] | None,
) -> list[tuple[Carrier, Any]]:
    """Requests that tell carriers what of a reset does not fit into words.

    Args:
        carriers: of all envs.
        seeds: one, or None, for each env.
        options: for all envs, or a list with those of each.
        mask: which envs are reset; None means all.
    """
    if options is None and not any(_is_large(seed) for seed in seeds):
        return []
    own = options if isinstance(options, list) else [options] * len(seeds)
    requests = []
    for carrier in carriers:
        told = {i: (seeds[i], own[i]) for i in carrier.env_ids if mask is None or mask[i]}
        if told:
            requests.append((carrier, carrier.prepare_reset(told)))
    return requests


def require_whole_batches(call: str, ids: Ids, carriers: Sequence[Carrier]) -> None:
    """Refuse to ask some envs of a batch that steps all its envs at once.

    Raises:
        UsageError: naming the envs that belong together.
    """
    for carrier in carriers:
        own = [i for i in ids.tolist() if i in carrier.env_ids]
        if own and len(own) != len(carrier.env_ids):
            first, last = carrier.env_ids[0], carrier.env_ids[-1]
            raise UsageError(
                f"{call}: native batches step all their envs at once, and envs {first}-{last} "
                f"are one batch; of these, only {own} are named. Name all of them or none. No "
                "env was asked anything"
            )


def _is_large(seed: int | None) -> bool:
    return seed is not None and not 0 <= seed < MOST_SEED
