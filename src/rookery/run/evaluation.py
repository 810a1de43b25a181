"""How good a policy is: whole episodes, each env the same number of them."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium import Space

from rookery.collect.ends import faults_told
from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, WorkerError
from rookery.policy.base import Policy, follows_episodes
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.env_source import EnvSource
from rookery.run.results import EvalResult
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


def run_episodes(
    venv: VectorEnv,
    policy: Policy,
    episodes: int,
    seed: int,
    deterministic: bool = True,
    max_episode_steps: int = MOST_EPISODE_STEPS,
    return_key: str | None = None,
) -> Score:
    """Play ``episodes`` whole episodes in a vector env of autoreset mode same_step.

    Every env plays a number fixed beforehand. Counting whichever episodes end first would favour
    short ones. Episodes that a fault cuts off are not counted but played again, unless faults are
    all that happens; the score's note, and a warning, say so then. What the policy remembers, and
    the state of its generator, are afterwards as they were before.

    An episode's return is what the info of its last step holds under ``return_key``, else the sum
    of its rewards.
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
            lost = faults_told(info)
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
    """The returns of episodes, float64 ``[B]``: as the infos of their last steps tell, else sums.

    Args:
        total: sums of rewards.
        info: of the step.
        key: of the infos of last steps; None reads none.
    """
    final = info.get("final_info", {})
    return total if key not in final else np.where(final[f"_{key}"], final[key], total)


class EvaluationEnvs:
    """The vector env of evaluations, kept from one to the next.

    Args:
        source: makes it.
        options: of every vector env of the run.
        spaces: of observations and actions of the policy, which those of the envs must be.
    """

    def __init__(
        self, source: EnvSource, options: dict[str, Any], spaces: tuple[Space[Any], Space[Any]]
    ) -> None:
        self._source, self._options, self._spaces = source, options, spaces
        self._venv: VectorEnv | None = None

    def of(self, num_envs: int) -> VectorEnv:
        """Return the one of so many envs.

        Raises:
            ConfigError: its spaces are not the policy's.
        """
        if self._venv is None or self._venv.num_envs != num_envs:
            self.close()
            venv = self._venv = self._source.make(num_envs, **self._options)
            own = venv.single_observation_space, venv.single_action_space
            kinds = ("observation", "action")
            for kind, theirs, ours in zip(kinds, own, self._spaces, strict=True):
                if theirs != ours:
                    self.close()
                    raise ConfigError(
                        f"the evaluation envs have {kind} space {theirs}, the policy has {ours}; "
                        "give an eval_env (or eval_wrappers) of the same spaces"
                    )
        return self._venv

    def close(self) -> None:
        """Close the vector env, if there is one."""
        if self._venv is not None:
            self._venv.close()
            self._venv = None


@contextmanager
def as_it_was(policy: Any) -> Iterator[None]:
    """Have a policy act, and remember and draw afterwards as if it had not, whatever happens."""
    memory, generator = policy.memory, copy.deepcopy(getattr(policy, "rng", None))
    held = getattr(policy, "held_noise", None)
    if held is not None:
        policy.held_noise = None
    try:
        yield
    finally:
        policy.memory = memory
        if getattr(policy, "held_noise", None) is not held:
            policy.held_noise = held
        if generator is not None:
            policy.rng = generator


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


def result_of(score: Score, folder: RunDirectory) -> EvalResult:
    """What an evaluation came to.

    Raises:
        WorkerError: when no episode could be counted.
    """
    if not len(score.returns):
        raise WorkerError(f"The evaluation came to nothing: {score.note}", command="step")
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
    """Derive the root seed of evaluation, so that it meets no episode of training."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])
