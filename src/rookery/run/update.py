"""An update of a run, and the callbacks that are still due for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rookery.run.log.journal import Journal, numbers


@dataclass(frozen=True)
class Update:
    """One collected rollout and the gradient steps on it.

    Attributes:
        steps: env steps so far, summed over all envs.
        new_steps: env steps of this update.
        metrics: maps the name of each metric of this update to its value; see docs/metrics.md.
    """

    steps: int
    new_steps: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Measured:
    """Metrics of an update, by how the log combines those of several updates.

    Attributes:
        means: metrics whose mean is logged.
        times: seconds; their sum is logged.
        peaks: metrics whose maximum is logged.
    """

    means: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)


class DueCallbacks:
    """The callbacks that were not called yet for an update, and its line in the log.

    A checkpoint stores their names, so that a run that was interrupted between two callbacks calls
    the remaining ones when it is resumed.

    Args:
        update: argument of the calls.
        callbacks: all callbacks, in the order of the calls.
        measured: metrics of the update, for the log.
    """

    def __init__(
        self,
        update: Update,
        callbacks: Sequence[Callable[..., Any]],
        measured: Measured | None = None,
    ) -> None:
        self.update = update
        self._measured = measured or Measured()
        self._left = _named(callbacks)
        self._is_under_way = False
        self._is_written = False

    def write(self, journal: Journal) -> None:
        """Add the update to the journal, if it is not there yet."""
        if not self._is_written:
            self._is_written = True
            update, measured = self.update, self._measured
            journal.add(
                update.steps, update.metrics, measured.means, measured.times, measured.peaks
            )

    def __bool__(self) -> bool:
        return bool(self._left)

    @contextmanager
    def turn(self) -> Iterator[Callable[..., Any]]:
        """Yield the next callback; it counts as called if the block ends without an exception."""
        self._is_under_way = True
        try:
            yield self._left[0][1]
        finally:
            self._is_under_way = False
        del self._left[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the due callbacks as plain data, without the one that is being called."""
        return {
            "new_steps": self.update.new_steps,
            "metrics": numbers(self.update.metrics),
            "callbacks": [name for name, _ in self._left[self._is_under_way :]],
        }

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], steps: int, callbacks: Sequence[Callable[..., Any]]
    ) -> DueCallbacks:
        """Restore the due callbacks from `state_dict`, for the update at ``steps``."""
        due = cls(Update(steps, state["new_steps"], dict(state["metrics"])), callbacks)
        due._left = [each for each in due._left if each[0] in state["callbacks"]]
        return due


def _named(callbacks: Sequence[Callable[..., Any]]) -> list[tuple[str, Callable[..., Any]]]:
    """Pair each callback with a name that is the same in a resumed run: its kind and a number."""
    counts: Counter[str] = Counter()
    named = []
    for callback in callbacks:
        kind: Any = callback if hasattr(callback, "__qualname__") else type(callback)
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        named.append((f"{name} {counts[name]}", callback))
    return named
