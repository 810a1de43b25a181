"""How many envs each worker has."""

from __future__ import annotations

from itertools import pairwise


def split(num_envs: int, num_parts: int) -> list[range]:
    """Consecutive ranges that cover ``num_envs`` and differ in length by one at most."""
    bounds = [num_envs * i // num_parts for i in range(num_parts + 1)]
    return [range(a, b) for a, b in pairwise(bounds)]
