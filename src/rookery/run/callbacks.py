"""Callbacks of a trainer: called as ``callback(trainer, update)`` after each update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from rookery.common.arguments import unfit, whole_number, without_fraction
from rookery.errors import ConfigError
from rookery.run.settings import TrainSettings, is_number

if TYPE_CHECKING:
    from rookery.run.plan import RunPlan
    from rookery.run.trainer import Trainer
    from rookery.run.update import Update

Callback: TypeAlias = "Callable[[Trainer, Update], Any]"


class StopTraining(Exception):
    """Exception that a callback raises to end the run after this update; its text is the reason."""


class EvaluateEvery:
    """Callback that evaluates every ``steps`` env steps and keeps the best policy in ``best.pt``.

    It adds the metrics ``eval_return_mean`` and ``eval_return_std``, which ``evaluations.jsonl``
    and the learning curve also show.

    Args:
        steps: env steps between two evaluations.
        episodes: number of episodes of each evaluation.
        stop_at: end the run once the mean return reaches this.
        keep_best: write ``best.pt``.
        deterministic: take the most probable actions instead of sampling them.
    """

    def __init__(
        self,
        steps: int,
        episodes: int = 20,
        stop_at: float | None = None,
        keep_best: bool = True,
        deterministic: bool = True,
    ) -> None:
        self._every = whole_number("steps", without_fraction(steps), 1)
        self._episodes = whole_number("episodes", episodes, 1)
        if stop_at is not None and not is_number(stop_at):
            raise unfit("stop_at", "a number, or None", stop_at)
        self._stop_at, self._keep_best, self._deterministic = stop_at, keep_best, deterministic

    def __call__(self, trainer: Trainer, update: Update) -> None:
        """Evaluate if an evaluation is due."""
        if not _is_due(self._every, update):
            return
        score = trainer.evaluate(self._episodes, deterministic=self._deterministic)
        mean, std = score.eval_return_mean, score.eval_return_std
        trainer.log(update, {"eval_return_mean": mean, "eval_return_std": std})
        trainer.evaluations.add(update.steps, mean, std)
        best = trainer.progress.best_return
        if best is None or mean > best or math.isnan(best):
            if self._keep_best:  # before best_return, so that an interruption cannot lose the file
                trainer.save(trainer.run_dir.best)
            trainer.progress.best_return = mean
        if self._stop_at is not None and mean >= self._stop_at:
            raise StopTraining(
                f"the mean return of {score.episodes} episodes, {mean:.1f}, reached "
                f"{self._stop_at:g}"
            )


class CheckpointEvery:
    """Callback that writes a checkpoint to ``checkpoints/`` every ``steps`` env steps.

    ``rookery.load`` reads these checkpoints. Unlike ``checkpoint.pt`` they contain neither the
    replay nor the envs.

    Args:
        steps: env steps between two checkpoints.
        keep: number of latest checkpoints to keep.
    """

    def __init__(self, steps: int, keep: int = 5) -> None:
        self._every = whole_number("steps", without_fraction(steps), 1)
        self._keep = whole_number("keep", keep, 1)

    def __call__(self, trainer: Trainer, update: Update) -> None:
        """Write a checkpoint if one is due, and delete the oldest."""
        if not _is_due(self._every, update):
            return
        folder = trainer.run_dir.checkpoints
        trainer.save(folder / f"step-{update.steps:010d}.pt")
        for path in sorted(folder.glob("step-*.pt"))[: -self._keep]:
            path.unlink(missing_ok=True)


class RecordVideo:
    """Callback that records an episode as mp4 in ``videos/`` every ``steps`` env steps.

    The episode is played in a separate env with the most probable actions, so recording does not
    change the training.

    Args:
        steps: env steps between two videos.

    Raises:
        MissingExtra: moviepy is not installed.
    """

    def __init__(self, steps: int) -> None:
        from rookery.run.video import require_moviepy

        require_moviepy()
        self._every = whole_number("steps", without_fraction(steps), 1)

    def __call__(self, trainer: Trainer, update: Update) -> None:
        """Record an episode if a video is due."""
        if _is_due(self._every, update):
            from rookery.run.video import record

            plan = trainer.plan
            folder, seed = trainer.run_dir.videos, plan.settings.seed
            record(plan.eval_source, trainer.policy, folder, f"step-{update.steps}", seed)


def _is_due(every: int, update: Update) -> bool:
    """Return True if the update passed a multiple of ``every`` env steps."""
    return update.steps // every > (update.steps - update.new_steps) // every


def _checked(callbacks: Any) -> list[Callback]:
    """Return ``callbacks`` as a list.

    Raises:
        ConfigError: ``callbacks`` is not a sequence of callables.
    """
    if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
        raise unfit("callbacks", "a sequence of callables (trainer, update)", callbacks)
    listed = list(callbacks)
    for i, callback in enumerate(listed):
        if isinstance(callback, type):
            raise ConfigError(
                f"callbacks[{i}] is the class {callback.__name__}; pass an object of it, such as "
                f"{callback.__name__}(...)"
            )
        if not callable(callback):
            raise unfit(f"callbacks[{i}]", "a callable (trainer, update)", callback)
    return listed


def callbacks_of(plan: RunPlan, more: Any) -> list[Callback]:
    """Return all callbacks of a run: those that its settings create, then ``more``.

    Raises:
        ConfigError: ``more`` is not a sequence of callables, or the env cannot be recorded.
    """
    callbacks = [*_asked_for(plan.settings), *_checked(more)]
    for callback in callbacks:
        if isinstance(callback, RecordVideo):
            from rookery.run.video import require_frames

            require_frames(plan.eval_source, plan.settings.seed)
    return callbacks


def _asked_for(settings: TrainSettings) -> list[Callback]:
    callbacks: list[Callback] = []
    if settings.eval_every and settings.eval_episodes:
        callbacks.append(
            EvaluateEvery(settings.eval_every, settings.eval_episodes, settings.stop_at)
        )
    if settings.checkpoint_every:
        callbacks.append(CheckpointEvery(settings.checkpoint_every, settings.keep_checkpoints))
    if settings.video_every:
        callbacks.append(RecordVideo(settings.video_every))
    return callbacks
