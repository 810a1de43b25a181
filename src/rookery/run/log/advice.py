"""Advice about the settings of a new run, from its settings and its first rollouts.

Each sentence is printed once, to standard error. A resumed run prints none. Advice is not a Python
warning, because a program that turns warnings into errors must not stop for it.
``gymnasium.logger.min_level`` above ``WARN`` silences it.

Only algorithms of this library get advice. Rollouts that are shorter than episodes get none: the
learned value estimates the rest of an episode, and with lambda below 1 an advantage hardly depends
on more than ``1 / (1 - gamma * lambda)`` steps (17 with PPO's defaults). In a corridor of 16 cells
with a reward at its end (40,000 steps, 3 seeds), PPO with lambda 0.95 found the shortest path
earlier with 8 steps per rollout than with 128. A2C came near it in two of three runs with 5 steps,
and in none with 40 steps, which make an eighth of the gradient steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium as gym
import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.learn.base import Algorithm
from rookery.learn.config import AdvantageConfig, PPOConfig
from rookery.learn.config_base import Config
from rookery.policy.space_tree import leaf_spaces
from rookery.rollout import Rollout
from rookery.rollout.normalize import RewardScaler
from rookery.run.algorithms import BuiltIn, config_of

LARGE_RETURNS = 100.0  # standard deviation; on Pendulum it is 190, and PPO needs normalize_reward
LARGE_OBSERVATION = 100.0  # root mean square of a component
FAR_APART = 1000.0  # ratio of the largest component to the median one
_STEPS_FOR_REWARDS = 1_000  # env steps before rewards are judged
_ROWS_OF_OBSERVATIONS = 1_000  # evenly spaced rows of the first rollout that are examined


def on_minibatch(config: Config, num_envs: int) -> str | None:
    """Return advice if a rollout has less than half of PPO's default minibatch size.

    `PPOConfig.check` refuses other sizes that exceed the rollout. The default is cut to the rollout
    instead, so that each epoch is one gradient step on few transitions.
    """
    if not isinstance(config, PPOConfig):
        return None
    rows = config.num_steps * num_envs
    if 2 * rows > config.minibatch_size:
        return None
    return (
        f"minibatch_size is {config.minibatch_size}, but a rollout has {rows} transitions "
        f"(num_steps {config.num_steps} x num_envs {num_envs}), so each epoch is one gradient step "
        "on all of them; a larger num_steps or num_envs makes gradients less noisy"
    )


def on_rewards(deviation: float, steps: int) -> str | None:
    """Return advice to set ``normalize_reward`` if returns are large.

    Large errors of the learned value then dominate the gradient of the policy.

    Args:
        deviation: standard deviation of the discounted returns so far.
        steps: number of env steps so far.
    """
    if not deviation >= LARGE_RETURNS:  # NaN gets no advice either
        return None
    return (
        f"discounted returns of the first {steps:,} steps have a standard deviation of "
        f"{_round(deviation)}, so errors of the learned value can dominate the gradient; "
        "normalize_reward=True (--normalize-reward) divides rewards by it"
    )


def _round(number: float) -> str:
    return f"{number:,.0f}" if number < 1e9 else f"{number:.1e}"


def on_observations(sizes: Mapping[str, float]) -> str | None:
    """Return advice to set ``normalize_obs`` if components are very large or differ much in size.

    Args:
        sizes: root mean square of each component, by its name.
    """
    if not sizes:
        return None
    name = max(sizes, key=lambda each: sizes[each])
    largest, median = sizes[name], float(np.median([s for s in sizes.values() if s] or [0.0]))
    if not (largest >= LARGE_OBSERVATION or largest >= FAR_APART * median > 0.0):
        return None
    others = f", the median component {median:.2g}" if len(sizes) > 1 else ""
    return (
        f"{name} has a root mean square of {largest:.2g}{others}; networks learn badly from "
        "numbers far from 1. normalize_obs=True (--normalize-obs) standardises observations"
    )


def advised(
    algorithm: Algorithm, num_envs: int, own_envs: int, observation_space: spaces.Space[Any]
) -> FirstRollouts | None:
    """Print advice about the settings, and return the advisor for the first rollouts.

    Args:
        algorithm: algorithm of the run.
        num_envs: number of envs of the run.
        own_envs: number of envs in the rollouts of this learner.
        observation_space: observation space of one env.

    Returns:
        None for custom algorithms.
    """
    config = config_of(algorithm)
    if config is None:
        return None
    print_advice(on_minibatch(config, num_envs))
    has_own_network = isinstance(algorithm, BuiltIn) and algorithm.modules.networks()
    return FirstRollouts(config, own_envs, None if has_own_network else observation_space)


class FirstRollouts:
    """An advisor that examines the first rollouts of a run.

    Args:
        config: settings of the algorithm.
        num_envs: number of envs in the rollouts.
        observation_space: observation space of one env; None if a custom network reads the
            observations, which then get no advice.
    """

    def __init__(
        self, config: Config, num_envs: int, observation_space: spaces.Space[Any] | None
    ) -> None:
        self._space = None if getattr(config, "normalize_obs", True) else observation_space
        self._steps = 0
        self._scaler = None
        if isinstance(config, AdvantageConfig) and not config.normalize_reward:
            self._scaler = RewardScaler(num_envs, config.gamma)

    def look(self, rollout: Rollout) -> bool:
        """Examine a rollout and print advice; return True if the next rollout is needed too."""
        is_first = not self._steps
        self._steps += rollout.num_transitions
        sizes = {}
        with np.errstate(all="ignore"):  # warnings may be errors here
            if is_first and self._space is not None:
                sizes = component_sizes(self._space, rollout.obs)
            rewards = self._of_rewards(rollout)
        print_advice(on_observations(sizes))
        print_advice(rewards)
        return self._scaler is not None

    def _of_rewards(self, rollout: Rollout) -> str | None:
        if self._scaler is None:
            return None
        self._scaler.scale(rollout)
        if self._steps < _STEPS_FOR_REWARDS:
            return None
        deviation = float(np.sqrt(self._scaler.moments.variance))
        self._scaler = None
        return on_rewards(deviation, self._steps)


def component_sizes(space: spaces.Space[Any], obs: Tree) -> dict[str, float]:
    """Return the root mean square of each component of vector observations, by name.

    Args:
        space: observation space of one env. Images in it are left out.
        obs: observations ``[T, B, *obs]``. At most 1,000 evenly spaced rows are used.
    """
    sizes: dict[str, float] = {}
    for path, leaf in leaf_spaces(space):
        if not isinstance(leaf, spaces.Box) or len(leaf.shape) > 1 or leaf.dtype == np.uint8:
            continue
        rows = _leaf(obs, path)
        rows = rows.reshape(rows.shape[0] * rows.shape[1], -1)
        some = rows[:: -(-len(rows) // _ROWS_OF_OBSERVATIONS)].astype(np.float64)
        where = "observation" + "".join(f"[{key!r}]" for key in path)
        for i, size in enumerate(np.sqrt(np.square(some).mean(axis=0)).tolist()):
            sizes[f"{where}[{i}]" if leaf.shape else where] = size
    return sizes


def _leaf(obs: Any, path: tuple[str | int, ...]) -> npt.NDArray[Any]:
    for key in path:
        obs = obs[key]
    return np.asarray(obs)


def print_advice(sentence: str | None) -> None:
    """Write a sentence to standard error, if there is one."""
    if sentence is None or sys.stderr is None or gym.logger.min_level > gym.logger.WARN:
        return
    # Standard error may be a closed file or pipe. The run must go on.
    with suppress(OSError, ValueError):
        print(f"rookery: advice: {sentence}", file=sys.stderr, flush=True)
