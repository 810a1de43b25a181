"""Progress of a run: its updates, their callbacks that are still due, schedule and counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rookery.run.log.history import History
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
class UpdateMetrics:
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
        measured: UpdateMetrics | None = None,
    ) -> None:
        self.update = update
        self._measured = measured or UpdateMetrics()
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


@dataclass
class Schedule:
    """Progress of a run, from 0 at its start to 1 at its end.

    If ``total_steps`` of a resumed run changes, progress continues from its current value.

    Attributes:
        total_steps: env steps at which the run ends.
        since: env steps at which ``total_steps`` was last changed.
        done: progress at that time.
    """

    total_steps: int
    since: int = 0
    done: float = 0.0

    def progress(self, steps: int) -> float:
        """Return the progress after ``steps`` env steps."""
        left = max(self.total_steps - self.since, 1)
        return min(self.done + (1.0 - self.done) * (steps - self.since) / left, 1.0)

    def moved(self, total_steps: int, steps: int) -> Schedule:
        """Return the schedule with a new ``total_steps`` from ``steps`` on."""
        if total_steps == self.total_steps:
            return self
        return Schedule(total_steps, steps, self.progress(steps))


@dataclass
class Progress:
    """Counters and results of a run; a checkpoint stores all of them.

    Attributes:
        schedule: progress from 0 to 1, for learning rates and the like.
        history: returns and lengths of recent episodes.
        steps: env steps so far, summed over all envs.
        seconds: training time so far.
        saves: number of checkpoints so far.
        best_return: the best mean return of an `EvaluateEvery` so far; None before the first.
        stopped: the reason why the run ended early; empty if it did not.
        due: callbacks still to be called for the last update; None between updates.
    """

    schedule: Schedule
    history: History
    steps: int = 0
    seconds: float = 0.0
    saves: int = 0
    best_return: float | None = None
    stopped: str = ""
    due: DueCallbacks | None = None

    @property
    def share(self) -> float:
        """Progress from 0 to 1."""
        return self.schedule.progress(self.steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the progress as plain data, without the due callbacks."""
        schedule = self.schedule
        return {
            "steps": self.steps,
            "seconds": self.seconds,
            "best_return": self.best_return,
            "schedule": [schedule.total_steps, schedule.since, schedule.done],
            "history": self.history.state_dict(),
            "saves": self.saves,
        }

    def due_state(self) -> dict[str, Any] | None:
        """Return the due callbacks as plain data; None without any."""
        return None if self.due is None else {**self.due.state_dict(), "stopped": self.stopped}

    def load(self, saved: Mapping[str, Any], callbacks: Sequence[Callable[..., Any]]) -> None:
        """Restore the progress from a checkpoint.

        Args:
            saved: content of the checkpoint.
            callbacks: all callbacks of the resumed run.
        """
        self.steps, self.seconds = saved["steps"], saved["seconds"]
        self.saves, self.best_return = saved["saves"], saved["best_return"]
        self.schedule = Schedule(*saved["schedule"])
        self.history.load_state_dict(saved["history"])
        due = saved.get("due")  # missing in checkpoints of earlier versions
        if due is not None:
            self.due = DueCallbacks.of_state(due, self.steps, callbacks)
            self.stopped = due["stopped"]
