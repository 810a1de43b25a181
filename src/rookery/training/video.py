"""Videos of what the policy does, recorded by an env of their own beside the training."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.env.deferred import Workshop
from rookery.env.recipe import make_recipes
from rookery.errors import ConfigError, MissingExtra
from rookery.rollout.tree import Tree, tree_map
from rookery.training.source import EnvSource

_MOST_STEPS = 10_000  # of an episode that is recorded: minutes of video


class VideoRecorder:
    """Plays one episode every ``every`` env steps and keeps it as an mp4 file.

    An episode that does not end is recorded for its first 10 000 steps, and a warning says so.

    The episode is played in an env built for it, with the most probable actions, so that training
    is the same with videos and without them.

    Args:
        source: which env.
        every: env steps of training between two videos.
        folder: where the files go.
        seed: of the env's episodes.
    """

    def __init__(self, source: EnvSource, every: int, folder: Path, seed: int) -> None:
        try:
            import moviepy  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
        except ImportError as error:
            raise MissingExtra("videos need moviepy: pip install moviepy") from error
        self._source = source
        self._every = every
        self._folder = folder
        self._seed = seed
        self._next = every

    def begin(self, steps: int) -> None:
        """Count from ``steps`` env steps on, those of a run that is resumed."""
        self._next = (steps // self._every + 1) * self._every

    def maybe_record(self, steps: int, policy: Any) -> None:
        """Record an episode if it is time, at ``steps`` env steps of training."""
        if steps < self._next:
            return
        self.begin(steps)
        workshop = Workshop()
        env = self._build(workshop, steps)
        try:
            _play(env, policy, self._seed)
        finally:
            env.close()
            workshop.close()

    def _build(self, workshop: Workshop, steps: int) -> gym.Env[Any, Any]:
        source = self._source
        kwargs = {**source.env_kwargs, "render_mode": "rgb_array"}
        (recipe,) = make_recipes(source.env, 1, kwargs, tuple(source.wrappers))
        env = recipe.build(workshop)
        if env.render_mode != "rgb_array":
            raise ConfigError(
                f"video_every: {source.name} has no render_mode 'rgb_array' to record videos with"
            )
        with warnings.catch_warnings():
            # The folder holds earlier videos; this one has a name of its own.
            warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
            return gym.wrappers.RecordVideo(
                env,
                str(self._folder),
                episode_trigger=lambda episode: True,
                name_prefix=f"step-{steps}",
                disable_logger=True,
            )


def _play(env: gym.Env[Any, Any], policy: Any, seed: int) -> None:
    obs, _ = env.reset(seed=seed)
    ended, memory = False, policy.memory
    policy.begin_episodes(np.ones(1, np.bool_))
    for _ in range(_MOST_STEPS):
        action = policy.to_env(policy.act(_batch_of_one(obs), deterministic=True).action)
        obs, _, terminated, truncated, _ = env.step(action[0])
        ended = bool(terminated or truncated)
        if ended:
            break
    if not ended:
        gym.logger.warn(
            f"The episode of a video had not ended after {_MOST_STEPS} steps and was cut there."
        )
    policy.memory = memory


def _batch_of_one(obs: Tree) -> Tree:
    return tree_map(lambda leaf: np.asarray(leaf)[None], obs)
