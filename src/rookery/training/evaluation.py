"""How good a policy is: whole episodes, each env the same number of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.env.seeding import env_seeds
from rookery.errors import ConfigError
from rookery.policy.base import Policy
from rookery.training.algorithms import ALGORITHMS
from rookery.training.checkpoint import load_checkpoint
from rookery.training.run_dir import RunDirectory
from rookery.training.settings import EvalResult, TrainSettings
from rookery.training.source import EnvSource
from rookery.vector.base import VectorEnv


@dataclass(frozen=True, slots=True)
class Score:
    """Returns and lengths of evaluation episodes.

    Attributes:
        returns: float64 ``[episodes]``.
        lengths: int64 ``[episodes]``.
        seconds: how long they took.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    seconds: float


def evaluate(
    run_dir: str | Path,
    episodes: int = 20,
    *,
    seed: int | None = None,
    num_envs: int | None = None,
    deterministic: bool = True,
    env: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
) -> EvalResult:
    """Evaluate the checkpoint of a run.

    Args:
        run_dir: folder that `train` wrote.
        episodes: how many whole episodes.
        seed: of envs and drawn actions; None takes the run's, which gives the episodes of its
            own final evaluation where ``num_envs`` and ``episodes`` are the same.
        num_envs: how many envs run in parallel; None takes the run's number.
        deterministic: take the most probable actions instead of drawing them.
        env: what to evaluate on; None takes the run's env. Needed where that was a lambda.
        env_kwargs: likewise.
        wrappers: likewise.

    Returns:
        Mean and deviation of the returns, and how long it took.
    """
    if episodes < 1:
        raise ConfigError(f"episodes is {episodes}; it must be at least 1")
    run = RunDirectory.existing(run_dir)
    config = run.read_config()
    settings = TrainSettings(**config["train"])
    source = EnvSource.from_dict(config["source"], env, env_kwargs, wrappers)
    algorithm = ALGORITHMS[config["algo"]]
    seed = settings.seed if seed is None else seed
    state = load_checkpoint(run.checkpoint)
    learned_with = algorithm.config.from_dict(config[algorithm.name])
    if num_envs is None:
        collector = algorithm.collector(learned_with, settings)
        num_envs = settings.num_evaluation_envs(collector, episodes)
    with source.make(num_envs, **settings.vector_options()) as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        policy = algorithm.make_policy(learned_with, *spaces, seed)
        policy.model.load_state_dict(state["model"])
        score = run_episodes(venv, policy, episodes, seed, deterministic)
    steps = int(score.lengths.sum())
    return EvalResult(
        run_dir=str(run.path),
        steps=steps,
        seconds=score.seconds,
        steps_per_second=steps / score.seconds,
        eval_return_mean=float(score.returns.mean()),
        eval_return_std=float(score.returns.std()),
        episodes=episodes,
    )


def run_episodes(
    venv: VectorEnv, policy: Policy, episodes: int, seed: int, deterministic: bool = True
) -> Score:
    """Play ``episodes`` whole episodes in a vector env of autoreset mode same_step.

    Every env plays a number fixed beforehand. Counting whichever episodes end first would favour
    short ones. Episodes that a fault cuts off are played again.
    """
    quota = np.full(venv.num_envs, episodes // venv.num_envs)
    quota[: episodes % venv.num_envs] += 1
    played = np.zeros_like(quota)
    total, length = np.zeros(venv.num_envs), np.zeros(venv.num_envs, np.int64)
    finished: list[tuple[float, int]] = []
    start = time.perf_counter()
    obs, _ = venv.reset(seed=env_seeds(evaluation_seed(seed), venv.num_envs))
    policy.begin_episodes(np.ones(venv.num_envs, np.bool_))
    while (played < quota).any():
        action = policy.to_env(policy.act(obs, deterministic).action)
        obs, reward, terminated, truncated, info = venv.step(action)
        total += reward
        length += 1
        ended = terminated | truncated
        whole = ended & ~np.asarray(info.get("_fault", False)) & (played < quota)
        finished += zip(total[whole].tolist(), length[whole].tolist(), strict=True)
        played += whole
        total[ended], length[ended] = 0.0, 0
        if policy.is_recurrent:
            policy.begin_episodes(ended)
    returns, lengths = zip(*finished, strict=True)
    seconds = time.perf_counter() - start
    return Score(np.array(returns, np.float64), np.array(lengths, np.int64), seconds)


def evaluation_seed(seed: int) -> int:
    """Derive the root seed of evaluation, so that it meets no episode of training."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
