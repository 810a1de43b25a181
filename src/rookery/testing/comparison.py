"""Comparison: the operations so far, their expected results, and changes of earlier results."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from rookery.testing.difference import CheckFailed, Difference, find_difference

RESET_NAMES = ("obs", "info")
STEP_NAMES = ("obs", "reward", "terminated", "truncated", "info")
RECV_NAMES = (*STEP_NAMES, "env_ids")

_MOST_KEPT = 8


@dataclass
class _Kept:
    operation: str
    came: dict[str, Any]
    snapshot: dict[str, Any]
    begun: npt.NDArray[np.int64]  # number of steps and resets that each env had begun
    is_view: bool


class KeptResults:
    """Checks that earlier results have not changed since they were returned.

    A copy must never change. A view may change after an env has begun the step after the next.

    Args:
        num_envs: number of envs.
        views_outlive: number of later steps of its envs during which a view must not change.
    """

    def __init__(self, num_envs: int, views_outlive: int = 1) -> None:
        self._begun = np.zeros(num_envs, np.int64)
        self._views_outlive = views_outlive
        self._kept: list[_Kept] = []

    def begin(self, env_ids: Any = slice(None)) -> None:
        """Record that envs begin a step or a reset."""
        self._begun[env_ids] += 1

    def keep(self, operation: str, came: dict[str, Any], is_view: bool) -> None:
        """Keep a copy of the parts of a result, by name."""
        self._kept.append(_Kept(operation, came, deepcopy(came), self._begun.copy(), is_view))
        del self._kept[:-_MOST_KEPT]

    def find_change(self) -> tuple[str, Difference] | None:
        """Return the operation with a changed result and the first change, or None."""
        self._kept = [kept for kept in self._kept if not self._is_over(kept)]
        for kept in self._kept:
            for name, snapshot in kept.snapshot.items():
                difference = find_difference(snapshot, kept.came[name], name)
                if difference is not None:
                    return kept.operation, difference
        return None

    def _is_over(self, kept: _Kept) -> bool:
        return kept.is_view and bool((self._begun - kept.begun > self._views_outlive).any())


class Comparison:
    """Records operations, compares their results, and checks that results do not change later.

    Args:
        num_envs: number of envs.
        copy: True if results are copies.
        views_outlive: number of later steps of its envs during which a view must not change.

    Attributes:
        history: the operations so far.
    """

    def __init__(self, num_envs: int, copy: bool, views_outlive: int = 1) -> None:
        self.history: list[str] = []
        self._copy = copy
        self._kept = KeptResults(num_envs, views_outlive)

    def note(self, operation: str) -> None:
        """Record the next operation."""
        self.history.append(operation)

    def begin(self, env_ids: Any = slice(None)) -> None:
        """Record that envs begin a step or a reset."""
        self._kept.begin(env_ids)

    def compare(self, expected: Any, came: Any, path: str) -> None:
        """Fail unless two values are equal to the last bit."""
        difference = find_difference(expected, came, path)
        if difference is not None:
            self.fail(difference)

    def take(self, names: Sequence[str], expected: Sequence[Any], came: Any) -> None:
        """Compare the parts of a result, and keep a copy of them."""
        self.require_parts(names, came)
        for name, e, c in zip(names, expected, came, strict=True):
            self.compare(e, c, name)
        self.keep(names, came)

    def keep(self, names: Sequence[str], came: Any) -> None:
        """Keep a copy of the parts of a result."""
        is_view = not self._copy and names != RECV_NAMES
        self._kept.keep(self.history[-1], dict(zip(names, came, strict=True)), is_view)

    def require_parts(self, names: Sequence[str], came: Any) -> None:
        """Fail unless a result is a tuple with these parts."""
        if not isinstance(came, tuple) or len(came) != len(names):
            self.fail(Difference("result", f"a tuple of {', '.join(names)}", came))

    def received_ids(self, came: Any, min_envs: int, busy: Container[int]) -> list[int]:
        """Return the ids in a result of ``recv``; fail if they are impossible."""
        self.require_parts(RECV_NAMES, came)
        ids = came[-1]
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
            self.fail(Difference("env_ids", "an int64 array [k]", ids))
        received: list[int] = ids.tolist()
        is_possible = len(set(received)) == len(received) >= min_envs
        is_possible = is_possible and all(i in busy for i in received)
        if not is_possible:
            expected = f"at least {min_envs} of the busy envs {busy}, each once"
            self.fail(Difference("env_ids", expected, ids))
        return received

    def refuses(self, kind: type[BaseException], call: Callable[[], Any]) -> None:
        """Fail unless a call raises an exception of this kind."""
        try:
            came = call()
        except kind:
            return
        self.fail(Difference("result", f"a {kind.__name__}", came))

    def look_back(self) -> None:
        """Fail if a result that was returned earlier has changed since."""
        change = self._kept.find_change()
        if change is not None:
            operation, difference = change
            self.fail(difference, operation, f"changed later, by {self.history[-1]}")

    def fail(self, difference: Difference, operation: str = "", why: str = "") -> NoReturn:
        """Raise CheckFailed for a difference."""
        raise CheckFailed(operation or self.history[-1], difference, self.history, why)
