"""Comparison: what was called so far, and whether every result was the one expected."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, NoReturn

import numpy as np

from rookery.testing.difference import CheckFailed, Difference, find_difference
from rookery.testing.keeping import KeptResults

RESET_NAMES = ("obs", "info")
STEP_NAMES = ("obs", "reward", "terminated", "truncated", "info")
RECV_NAMES = (*STEP_NAMES, "env_ids")


class Comparison:
    """Notes operations, compares their results, and watches that results do not change later.

    Args:
        num_envs: how many envs there are.
        copy: whether results are copies.
        views_outlive: how many later steps of its envs a view must survive.

    Attributes:
        history: the operations so far.
    """

    def __init__(self, num_envs: int, copy: bool, views_outlive: int = 1) -> None:
        self.history: list[str] = []
        self._copy = copy
        self._kept = KeptResults(num_envs, views_outlive)

    def note(self, operation: str) -> None:
        """Note what is called next."""
        self.history.append(operation)

    def begin(self, env_ids: Any = slice(None)) -> None:
        """Note that envs begin a step or a reset."""
        self._kept.begin(env_ids)

    def compare(self, expected: Any, came: Any, path: str) -> None:
        """Fail unless two values are equal to the last bit."""
        difference = find_difference(expected, came, path)
        if difference is not None:
            self.fail(difference)

    def take(self, names: Sequence[str], expected: Sequence[Any], came: Any) -> None:
        """Compare the parts of a result, and remember them as they are now."""
        self.require_parts(names, came)
        for name, e, c in zip(names, expected, came, strict=True):
            self.compare(e, c, name)
        self.keep(names, came)

    def keep(self, names: Sequence[str], came: Any) -> None:
        """Remember the parts of a result as they are now."""
        is_view = not self._copy and names != RECV_NAMES
        self._kept.keep(self.history[-1], dict(zip(names, came, strict=True)), is_view)

    def require_parts(self, names: Sequence[str], came: Any) -> None:
        """Fail unless a result is a tuple of so many parts."""
        if not isinstance(came, tuple) or len(came) != len(names):
            self.fail(Difference("result", f"a tuple of {', '.join(names)}", came))

    def received_ids(self, came: Any, min_envs: int, busy: Container[int]) -> list[int]:
        """The ids in a result of ``recv``, once they are known to be possible."""
        self.require_parts(RECV_NAMES, came)
        ids = came[-1]
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
            self.fail(Difference("env_ids", "an int64 array [k]", ids))
        told: list[int] = ids.tolist()
        possible = len(set(told)) == len(told) >= min_envs and all(i in busy for i in told)
        if not possible:
            expected = f"at least {min_envs} of the busy envs {busy}, each once"
            self.fail(Difference("env_ids", expected, ids))
        return told

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
        """Raise what was found."""
        raise CheckFailed(operation or self.history[-1], difference, self.history, why)
