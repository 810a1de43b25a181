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
from rookery.training.evaluation import as_it_was
from rookery.training.source import EnvSource

_MOST_STEPS = 10_000  # of an episode that is recorded: minutes of video


def require_moviepy() -> None:
    """Complain if videos cannot be written.

    Raises:
        MissingExtra: moviepy is not installed.
    """
    try:
        import moviepy  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
    except ImportError as error:
        raise MissingExtra("videos need moviepy: pip install 'rookery[video]'") from error


def record(source: EnvSource, policy: Any, folder: Path, name: str, seed: int) -> None:
    """Play one episode with the most probable actions, and keep it as an mp4 file.

    An episode that does not end is recorded for its first 10 000 steps, and a warning says so.

    Args:
        source: which env.
        policy: who acts; it remembers afterwards what it did before.
        folder: where the file goes.
        name: the file's, to which the number of the episode is added.
        seed: of the episode.

    Raises:
        ConfigError: the env renders no pictures.
    """
    folder, workshop = folder.absolute(), Workshop()  # the env may go to another one
    made = source.arguments()
    made["env_kwargs"]["render_mode"] = "rgb_array"
    (recipe,) = make_recipes(num_envs=1, **made)
    env = recipe.build(workshop)
    try:
        if env.render_mode != "rgb_array":
            raise ConfigError(
                f"video_every: {source.name} has no render_mode 'rgb_array' to record videos with"
            )
        with warnings.catch_warnings():
            # The folder holds earlier videos; this one has a name of its own.
            warnings.filterwarnings("ignore", message=".*Overwriting existing videos")
            env = gym.wrappers.RecordVideo(
                env,
                str(folder),
                episode_trigger=lambda episode: True,
                name_prefix=name,
                disable_logger=True,
            )
        with as_it_was(policy):
            _play(env, policy, seed)
    finally:
        env.close()  # type: ignore[no-untyped-call]
        workshop.close()


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
            f"The episode of a video had not ended after {_MOST_STEPS} steps and was cut there.",
        )


def _batch_of_one(obs: Tree) -> Tree:
    return tree_map(lambda leaf: np.asarray(leaf)[None], obs)
