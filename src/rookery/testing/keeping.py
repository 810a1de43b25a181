"""Results that a vector env returned earlier: they must not change afterwards."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.testing.difference import Difference, find_difference

_MOST_KEPT = 8


@dataclass
class _Kept:
    operation: str
    came: dict[str, Any]
    snapshot: dict[str, Any]
    begun: npt.NDArray[np.int64]  # how often each env had begun anything by then
    is_view: bool


class KeptResults:
    """Looks whether earlier results still hold what they held when they were returned.

    A copy holds it for ever. A view holds it until some env has begun the step after the next.

    Args:
        num_envs: how many envs there are.
        views_outlive: how many later steps of its envs a view must survive.
    """

    def __init__(self, num_envs: int, views_outlive: int = 1) -> None:
        self._begun = np.zeros(num_envs, np.int64)
        self._views_outlive = views_outlive
        self._kept: list[_Kept] = []

    def begin(self, env_ids: Any = slice(None)) -> None:
        """Note that envs begin a step or a reset."""
        self._begun[env_ids] += 1

    def keep(self, operation: str, came: dict[str, Any], is_view: bool) -> None:
        """Remember the parts of a result as they are now, by name."""
        self._kept.append(_Kept(operation, came, deepcopy(came), self._begun.copy(), is_view))
        del self._kept[:-_MOST_KEPT]

    def find_change(self) -> tuple[str, Difference] | None:
        """The operation whose result has changed, and where; None if none has."""
        self._kept = [kept for kept in self._kept if not self._is_over(kept)]
        for kept in self._kept:
            for name, snapshot in kept.snapshot.items():
                difference = find_difference(snapshot, kept.came[name], name)
                if difference is not None:
                    return kept.operation, difference
        return None

    def _is_over(self, kept: _Kept) -> bool:
        return kept.is_view and bool((self._begun - kept.begun > self._views_outlive).any())
