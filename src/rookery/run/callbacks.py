"""Callbacks of a trainer: called as ``callback(trainer, update)`` after each update."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from rookery.common.arguments import unfit, whole_number, without_fraction
from rookery.common.env_errors import describe, in_words
from rookery.common.trees import Tree, tree_map
from rookery.env.deferred import Workshop
from rookery.env.recipe import make_recipes
from rookery.errors import (
    ConfigError,
    EnvFailed,
    MissingExtra,
    RookeryError,
    SpaceError,
    WorkerError,
)
from rookery.run.checkpoint.run_dir import cannot_write
from rookery.run.env_source import EnvSource
from rookery.run.evaluation import as_it_was
from rookery.run.settings import TrainSettings, is_number

if TYPE_CHECKING:
    from rookery.run.plan import RunPlan
    from rookery.run.progress import Update
    from rookery.run.trainer import Trainer

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
        require_moviepy()
        self._every = whole_number("steps", without_fraction(steps), 1)

    def __call__(self, trainer: Trainer, update: Update) -> None:
        """Record an episode if a video is due."""
        if _is_due(self._every, update):
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


_MOST_STEPS = 10_000  # limit of a recorded episode: minutes of video


def require_moviepy() -> None:
    """Raise if videos cannot be written.

    Raises:
        MissingExtra: moviepy is not installed.
    """
    try:
        import moviepy  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise MissingExtra("videos need moviepy: pip install 'rookery[video]'") from error


class Frames(gym.Wrapper[Any, Any, Any, Any]):
    """Wrapper that checks that the rendered frames are suitable for a video.

    Args:
        env: env created with ``render_mode="rgb_array"``.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._shape: tuple[int, ...] | None = None

    def render(self) -> Any:
        """Return a frame, uint8 ``[height, width, 3]``.

        Raises:
            SpaceError: the frame has another type, or another shape than the frames before.
        """
        frame: Any = self.env.render()
        if not isinstance(frame, np.ndarray):
            raise SpaceError(f"render gave {in_words(frame, 100)}, not an array")
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise SpaceError(
                f"render gave {frame.dtype} of shape {frame.shape}, not uint8 [height, width, 3]"
            )
        if self._shape not in (None, frame.shape):
            raise SpaceError(f"render gave pictures of two shapes, {self._shape} and {frame.shape}")
        self._shape = frame.shape
        return frame


def require_frames(source: EnvSource, seed: int) -> None:
    """Build an env and render one frame, to raise early if videos cannot be recorded.

    Args:
        source: source of the env.
        seed: seed of the reset.

    Raises:
        ConfigError: the env cannot be built for rendering, or renders no suitable frames.
    """
    workshop = Workshop()
    with ExitStack() as stack:
        stack.callback(workshop.close)
        try:
            env = _rendering(source, workshop)
            stack.callback(env.close)
            env.reset(seed=seed)
            env.render()
        except SpaceError as error:
            raise ConfigError(
                f"video_every: no video can be recorded of {source.name}: {error}"
            ) from error
        except (RookeryError, OSError):
            raise
        except Exception as error:
            raise ConfigError(
                f"video_every: no video can be recorded of {source.name}, which raised "
                f"{type(error).__name__} when it was to render: {describe(error)}"
            ) from error


def record(source: EnvSource, policy: Any, folder: Path, name: str, seed: int) -> None:
    """Play one episode with the most probable actions, and record it as an mp4 file.

    An episode is cut off after 10,000 steps, with a warning.

    Args:
        source: source of the env.
        policy: policy that acts; its memory is restored afterwards.
        folder: folder of the file.
        name: name of the file, to which the number of the episode is added.
        seed: seed of the episode.

    Raises:
        EnvFailed: the env failed, or rendered no suitable frames.
        StorageError: the file cannot be written.
    """
    folder, workshop = folder.absolute(), Workshop()  # the env may change the working directory
    with ExitStack() as stack, _errors_named(source, folder):
        stack.callback(workshop.close)
        env = _rendering(source, workshop)
        closing = stack.enter_context(ExitStack())
        closing.callback(env.close)
        with warnings.catch_warnings():
            # The folder holds earlier videos; this one has a different name.
            warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
            recorder: Any = gym.wrappers.RecordVideo(
                env,
                str(folder),
                episode_trigger=lambda episode: True,
                name_prefix=name,
                disable_logger=True,
            )
        try:
            with as_it_was(policy):
                _play(recorder, policy, seed)
            closing.pop_all()
            recorder.close()  # the env, and writes the file
        finally:
            recorder.recorded_frames = []  # else it warns about frames that were not written


def _rendering(source: EnvSource, workshop: Workshop) -> gym.Env[Any, Any]:
    """Build an env with ``render_mode="rgb_array"``.

    Raises:
        ConfigError: the env has no such render mode.
    """
    made = source.arguments()
    kwargs = made.pop("env_kwargs")
    is_callable = not isinstance(source.env, (str, EnvSpec))
    try:
        (recipe,) = make_recipes(
            num_envs=1, env_kwargs={**kwargs, "render_mode": "rgb_array"}, **made
        )
        env = recipe.build(workshop)
    except TypeError as error:
        if not is_callable or "render_mode" not in str(error):
            raise
        # The callable takes no render_mode, but its env may have the right one.
        (recipe,) = make_recipes(num_envs=1, env_kwargs=kwargs, **made)
        env = recipe.build(workshop)
    if env.render_mode != "rgb_array":
        env.close()
        raise ConfigError(
            f"video_every: {source.name} has no render_mode 'rgb_array' to record videos with"
        )
    return Frames(env)


@contextmanager
def _errors_named(source: EnvSource, folder: Path) -> Iterator[None]:
    """Convert errors of recording to `EnvFailed` or `StorageError`, after which a run is saved."""
    try:
        yield
    except WorkerError:
        raise
    except OSError as error:
        raise cannot_write(folder, error) from error
    except Exception as error:
        failure = EnvFailed(
            f"{source.name} raised {type(error).__name__} while a video was recorded: "
            f"{describe(error)}. The run is saved; resume it with video_every=0 "
            "(--video-every 0) to continue without videos",
            env_ids=(0,),
            command="render",
        )
        failure.env_name = source.name
        raise failure from error


def _play(env: gym.Env[Any, Any], policy: Any, seed: int) -> None:
    obs, _ = env.reset(seed=seed)
    ended = False
    policy.begin_episodes(np.ones(1, np.bool_))
    for _ in range(_MOST_STEPS):
        batch: Tree = tree_map(lambda leaf: np.asarray(leaf)[None], obs)
        action = policy.to_env(policy.act(batch, deterministic=True).action)
        obs, _, terminated, truncated, _ = env.step(action[0])
        ended = bool(terminated or truncated)
        if ended:
            break
    if not ended:
        gym.logger.warn(
            "%s",
            f"A recorded episode had not ended after {_MOST_STEPS} steps and was cut off.",
        )
