"""Evaluation of a policy over complete episodes, spread evenly over the envs."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space

from rookery.collect.fill_rollout import fault_mask
from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, WorkerError
from rookery.policy.base import Policy, follows_episodes
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.env_source import EnvSource
from rookery.vector.base import VectorEnv

MOST_EPISODE_STEPS = 100_000  # default limit of one evaluation episode
_MOST_LOST = 20  # episodes that faults may cut off, in addition to twice the requested number


@dataclass(frozen=True, slots=True)
class Score:
    """Returns and lengths of evaluation episodes.

    Attributes:
        returns: returns of the episodes, float64 ``[episodes]``.
        lengths: steps of the episodes, int64 ``[episodes]``.
        seconds: duration of the evaluation.
        note: explains episodes that were cut off by the step limit and episodes that are missing
            because of faults; empty if there are none.
    """

    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Result of an evaluation.

    Attributes:
        run_dir: the run's folder.
        steps: env steps of the counted episodes.
        seconds: time of the evaluation, without start-up.
        steps_per_second: ``steps / seconds``.
        eval_return_mean: mean return.
        eval_return_std: standard deviation of the returns.
        episodes: number of episodes.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float
    eval_return_std: float
    episodes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain data."""
        return asdict(self)


def run_episodes(
    venv: VectorEnv,
    policy: Policy,
    episodes: int,
    seed: int,
    deterministic: bool = True,
    max_episode_steps: int = MOST_EPISODE_STEPS,
    return_key: str | None = None,
) -> Score:
    """Play ``episodes`` complete episodes in a vector env with autoreset mode same_step.

    Every env plays a number of episodes fixed in advance. Counting the episodes that end first
    would favour short ones. Episodes that a fault cuts off are replayed. After too many of them
    the evaluation stops early, and the score's note and a warning report that. The policy's memory
    and random generator are restored afterwards.

    An episode's return is the value under ``return_key`` in the info of its last step, or the sum
    of its rewards if there is none.
    """
    quota = np.full(venv.num_envs, episodes // venv.num_envs)
    quota[: episodes % venv.num_envs] += 1
    played = np.zeros_like(quota)
    total, length = np.zeros(venv.num_envs), np.zeros(venv.num_envs, np.int64)
    finished: list[tuple[float, int]] = []
    num_cut = num_lost = 0
    start = time.perf_counter()
    with as_it_was(policy):
        obs, _ = venv.reset(seed=env_seeds(evaluation_seed(seed), venv.num_envs))
        policy.begin_episodes(np.ones(venv.num_envs, np.bool_))
        while (played < quota).any() and num_lost <= _MOST_LOST + 2 * episodes:
            action = policy.to_env(policy.act(obs, deterministic).action)
            obs, reward, terminated, truncated, info = venv.step(action)
            total += reward
            length += 1
            ended, missing = terminated | truncated, played < quota
            lost = fault_mask(info)
            faulted = np.zeros_like(ended) if lost is None else ended & lost
            cut = ~ended & (length >= max_episode_steps)
            whole = (ended | cut) & ~faulted & missing
            num_cut += int(np.count_nonzero(cut & missing))
            num_lost += int(np.count_nonzero(faulted & missing))
            returns = _returns(total, info, return_key)
            finished += zip(returns[whole].tolist(), length[whole].tolist(), strict=True)
            played += whole
            if cut.any():
                obs, _ = venv.reset(options={"reset_mask": cut})
            total[ended | cut], length[ended | cut] = 0.0, 0
            if follows_episodes(policy):
                policy.begin_episodes(ended | cut)
    seconds = time.perf_counter() - start
    note = _note(num_cut, max_episode_steps, len(finished), episodes, num_lost)
    if note:
        gym.logger.warn("%s", f"Evaluation: {note}")
    totals = np.array([each for each, _ in finished], np.float64)
    lengths = np.array([each for _, each in finished], np.int64)
    return Score(totals, lengths, seconds, note)


def _returns(
    total: npt.NDArray[np.float64], info: dict[str, Any], key: str | None
) -> npt.NDArray[np.float64]:
    """Return the episode returns, float64 ``[B]``, from the final infos or else from the rewards.

    Args:
        total: sums of rewards, float64 ``[B]``.
        info: merged info of the step.
        key: key of the return in the final info; None uses the sums.
    """
    final = info.get("final_info", {})
    return total if key not in final else np.where(final[f"_{key}"], final[key], total)


class EvaluationEnvs:
    """The vector env of evaluations, kept open between them.

    Args:
        source: creates the vector env.
        options: arguments of `make_vec`.
        spaces: observation and action space of the policy. The envs must have the same.
    """

    def __init__(
        self, source: EnvSource, options: dict[str, Any], spaces: tuple[Space[Any], Space[Any]]
    ) -> None:
        self._source, self._options, self._spaces = source, options, spaces
        self._venv: VectorEnv | None = None

    def of(self, num_envs: int) -> VectorEnv:
        """Return the vector env with ``num_envs`` envs.

        Raises:
            ConfigError: its spaces differ from the policy's.
        """
        if self._venv is None or self._venv.num_envs != num_envs:
            self.close()
            venv = self._venv = self._source.make(num_envs, **self._options)
            found = venv.single_observation_space, venv.single_action_space
            kinds = ("observation", "action")
            for kind, theirs, ours in zip(kinds, found, self._spaces, strict=True):
                if theirs != ours:
                    self.close()
                    raise ConfigError(
                        f"the evaluation envs have {kind} space {theirs}, the policy has {ours}; "
                        "pass an eval_env (or eval_wrappers) with the same spaces"
                    )
        return self._venv

    def close(self) -> None:
        """Close the vector env, if there is one."""
        if self._venv is not None:
            self._venv.close()
            self._venv = None


@contextmanager
def as_it_was(policy: Any) -> Iterator[None]:
    """Restore the policy's memory, noise and random generator when the block ends."""
    memory, generator = policy.memory, copy.deepcopy(getattr(policy, "rng", None))
    held = getattr(policy, "noise_state", None)
    if held is not None:
        policy.noise_state = None
    try:
        yield
    finally:
        policy.memory = memory
        if getattr(policy, "noise_state", None) is not held:
            policy.noise_state = held
        if generator is not None:
            policy.rng = generator


def _note(num_cut: int, max_episode_steps: int, finished: int, episodes: int, lost: int) -> str:
    """Return warnings that concern the meaning of the mean return, or an empty string."""
    notes = []
    if num_cut:
        notes.append(
            f"{num_cut} of {finished} episodes had not ended after {max_episode_steps} steps and "
            "were cut off; they count with their return so far (give the env a time limit, or "
            "change max_episode_steps)"
        )
    if finished < episodes:
        notes.append(
            f"stopped after {finished} of {episodes} episodes, because worker faults cut off "
            f"{lost} others (see info['fault'] of a step and the worker's output)"
        )
    return "; ".join(notes)


def result_of(score: Score, folder: RunDirectory) -> EvalResult:
    """Summarize the score of an evaluation.

    Raises:
        WorkerError: no episode could be counted.
    """
    if not len(score.returns):
        raise WorkerError(f"No evaluation episode was completed: {score.note}", command="step")
    steps = int(score.lengths.sum())
    return EvalResult(
        run_dir=str(folder.path),
        steps=steps,
        seconds=score.seconds,
        steps_per_second=steps / score.seconds,
        eval_return_mean=float(np.mean(score.returns)),
        eval_return_std=float(np.std(score.returns)),
        episodes=len(score.returns),
    )


def evaluation_seed(seed: int) -> int:
    """Derive the root seed of evaluation, so that it differs from all seeds of training."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
