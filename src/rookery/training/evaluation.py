"""How good a policy is: whole episodes, each env the same number of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rookery.env.arguments import whole_number
from rookery.env.seeding import env_seeds
from rookery.errors import ConfigError, WorkerError
from rookery.policy.base import Policy
from rookery.training.algorithms import ALGORITHMS
from rookery.training.checkpoint import load_checkpoint
from rookery.training.run_dir import RunDirectory
from rookery.training.settings import EvalResult, TrainSettings
from rookery.training.source import EnvSource
from rookery.vector.base import VectorEnv

MOST_EPISODE_STEPS = 100_000  # of one episode of an evaluation, unless told otherwise
_MOST_LOST = 20  # episodes that faults may cut off, beside twice as many as are asked for


@dataclass(frozen=True, slots=True)
class Score:
    """Returns and lengths of evaluation episodes.

    Attributes:
        returns: float64 ``[episodes]``.
        lengths: int64 ``[episodes]``.
        seconds: how long they took.
        note: what was not as it was asked for: episodes that never ended by themselves, or fewer of
            them, as faults went on; empty if all is well.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    seconds: float
    note: str = ""


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
    max_episode_steps: int = MOST_EPISODE_STEPS,
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
        max_episode_steps: an episode that has not ended after so many steps is cut there; it counts
            with its return so far, and a warning says so.

    Returns:
        Mean and deviation of the returns, and how long it took.

    Raises:
        WorkerError: when faults cut off one episode after the other, so that none could be counted.
    """
    whole_number("max_episode_steps", max_episode_steps, 1)
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
        score = run_episodes(venv, policy, episodes, seed, deterministic, max_episode_steps)
    if not len(score.returns):
        raise WorkerError(f"The evaluation came to nothing: {score.note}", command="step")
    steps = int(score.lengths.sum())
    return EvalResult(
        run_dir=str(run.path),
        steps=steps,
        seconds=score.seconds,
        steps_per_second=steps / score.seconds,
        eval_return_mean=float(score.returns.mean()),
        eval_return_std=float(score.returns.std()),
        episodes=len(score.returns),
    )


def run_episodes(
    venv: VectorEnv,
    policy: Policy,
    episodes: int,
    seed: int,
    deterministic: bool = True,
    max_episode_steps: int = MOST_EPISODE_STEPS,
) -> Score:
    """Play ``episodes`` whole episodes in a vector env of autoreset mode same_step.

    Every env plays a number fixed beforehand. Counting whichever episodes end first would favour
    short ones. Episodes that a fault cuts off are not counted but played again, unless faults are
    all that happens; the score's note, and a warning, say so then.
    """
    quota = np.full(venv.num_envs, episodes // venv.num_envs)
    quota[: episodes % venv.num_envs] += 1
    played = np.zeros_like(quota)
    total, length = np.zeros(venv.num_envs), np.zeros(venv.num_envs, np.int64)
    finished: list[tuple[float, int]] = []
    num_cut = num_lost = 0
    start = time.perf_counter()
    obs, _ = venv.reset(seed=env_seeds(evaluation_seed(seed), venv.num_envs))
    policy.begin_episodes(np.ones(venv.num_envs, np.bool_))
    while (played < quota).any() and num_lost <= _MOST_LOST + 2 * episodes:
        action = policy.to_env(policy.act(obs, deterministic).action)
        obs, reward, terminated, truncated, info = venv.step(action)
        total += reward
        length += 1
        ended, missing = terminated | truncated, played < quota
        faulted = ended & np.asarray(info.get("_fault", False))
        cut = ~ended & (length >= max_episode_steps)
        whole = (ended | cut) & ~faulted & missing
        num_cut += int(np.count_nonzero(cut & missing))
        num_lost += int(np.count_nonzero(faulted & missing))
        finished += zip(total[whole].tolist(), length[whole].tolist(), strict=True)
        played += whole
        if cut.any():
            obs, _ = venv.reset(options={"reset_mask": cut})
        total[ended | cut], length[ended | cut] = 0.0, 0
        if policy.is_recurrent:
            policy.begin_episodes(ended | cut)
    seconds = time.perf_counter() - start
    note = _note(num_cut, max_episode_steps, len(finished), episodes, num_lost)
    if note:
        gym.logger.warn(f"Evaluation: {note}")
    returns = np.array([each for each, _ in finished], np.float64)
    lengths = np.array([each for _, each in finished], np.int64)
    return Score(returns, lengths, seconds, note)


def _note(num_cut: int, max_episode_steps: int, finished: int, episodes: int, lost: int) -> str:
    """What a user must know who reads the mean of the returns."""
    notes = []
    if num_cut:
        notes.append(
            f"{num_cut} of {finished} episodes had not ended after {max_episode_steps} steps and "
            "were cut there; they count with their return so far (give the env a time limit, or "
            "evaluate with another max_episode_steps)"
        )
    if finished < episodes:
        notes.append(
            f"given up after {finished} of {episodes} episodes, as faults of workers cut off "
            f"{lost} others (what failed is in info['fault'] of a step, and in the worker's output)"
        )
    return "; ".join(notes)


def evaluation_seed(seed: int) -> int:
    """Derive the root seed of evaluation, so that it meets no episode of training."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
