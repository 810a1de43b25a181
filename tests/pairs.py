"""Choosing from the product of a test's parameters.

Most faults that depend on parameters depend on one of them or on two together. So instead of every
combination of all values it is nearly as good, and many times cheaper, to run combinations in which
every two values meet at least once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations


def every_pair(rows: Sequence[Sequence[Hashable]]) -> list[int]:
    """Choose rows such that every value, and every two values of one row, are in a chosen row.

    Args:
        rows: a value of each parameter, in one order; not every combination needs to be there.

    Returns:
        Ascending indices into ``rows``. The same rows always give the same choice.
    """
    meetings = [_meetings(row) for row in rows]
    missing = set().union(*meetings)
    chosen = []
    while missing:
        # The row with the most meetings that are still missing; of equals, the first one.
        best = max(range(len(rows)), key=lambda i: len(meetings[i] & missing))
        chosen.append(best)
        missing -= meetings[best]
    return sorted(chosen)


def _meetings(row: Sequence[Hashable]) -> set[frozenset[tuple[int, Hashable]]]:
    """All values of a row, alone and by two."""
    values = list(enumerate(row))
    return {frozenset(some) for some in [*((one,) for one in values), *combinations(values, 2)]}
