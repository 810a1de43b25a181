"""Videos of the policy, recorded in a separate env."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

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
        action = policy.to_env(policy.act(_batch_of_one(obs), deterministic=True).action)
        obs, _, terminated, truncated, _ = env.step(action[0])
        ended = bool(terminated or truncated)
        if ended:
            break
    if not ended:
        gym.logger.warn(
            "%s",
            f"A recorded episode had not ended after {_MOST_STEPS} steps and was cut off.",
        )


def _batch_of_one(obs: Tree) -> Tree:
    return tree_map(lambda leaf: np.asarray(leaf)[None], obs)
