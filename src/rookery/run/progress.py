"""Progress of a run: steps, schedule, episodes and other counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.run.log.history import History
from rookery.run.update import DueCallbacks


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
