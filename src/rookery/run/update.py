"""Updates, and who has still to be told of the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rookery.run.log.journal import numbers


@dataclass(frozen=True)
class Update:
    """One rollout collected and learned from.

    Attributes:
        steps: env steps so far, all envs together.
        new_steps: how many of them this update has made.
        metrics: of this update, by name; docs/metrics.md explains them.
    """

    steps: int
    new_steps: int
    metrics: dict[str, float]


class DueCallbacks:
    """The callbacks that have not had an update yet.

    A checkpoint names them, so that a run which was interrupted amid them calls them when it is
    gone on with.

    Args:
        update: that they are called with.
        callbacks: in the order of their turns.
    """

    def __init__(self, update: Update, callbacks: Sequence[Callable[..., Any]]) -> None:
        self.update = update
        self._left = _named(callbacks)
        self._is_under_way = False

    def __bool__(self) -> bool:
        return bool(self._left)

    @contextmanager
    def turn(self) -> Iterator[Callable[..., Any]]:
        """Give the next one its turn, which is over if the block ends without an exception."""
        self._is_under_way = True
        try:
            yield self._left[0][1]
        finally:
            self._is_under_way = False
        del self._left[0]

    def state_dict(self) -> dict[str, Any]:
        """Which they are, as plain data; one that saves the run in its turn has had it."""
        return {
            "new_steps": self.update.new_steps,
            "metrics": numbers(self.update.metrics),
            "callbacks": [name for name, _ in self._left[self._is_under_way :]],
        }

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], steps: int, callbacks: Sequence[Callable[..., Any]]
    ) -> DueCallbacks:
        """Those of a run's callbacks that `state_dict` has named, for the update at ``steps``."""
        due = cls(Update(steps, state["new_steps"], dict(state["metrics"])), callbacks)
        due._left = [each for each in due._left if each[0] in state["callbacks"]]
        return due


def _named(callbacks: Sequence[Callable[..., Any]]) -> list[tuple[str, Callable[..., Any]]]:
    """Callbacks with names by which another process knows them: kind, and number of this kind."""
    counts: Counter[str] = Counter()
    named = []
    for callback in callbacks:
        kind: Any = callback if hasattr(callback, "__qualname__") else type(callback)
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        named.append((f"{name} {counts[name]}", callback))
    return named
