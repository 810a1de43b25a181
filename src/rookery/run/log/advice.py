"""Advice: what an expert would say of a run's settings, seeing them and the first rollouts.

A sentence is said once, on standard error, where the progress of a run goes, and a run that is
resumed has heard it: `FirstRollouts` looks at new runs only, for a few rollouts, and is dropped
then. It is no warning by itself: nothing is wrong, and where warnings are errors advice must not
end a run. ``gymnasium.logger.min_level`` above ``WARN`` silences it as it silences warnings.

Nothing is said of what is a matter of taste, or of algorithms that are not this library's. Nor is
anything said of rollouts that are shorter than episodes. What comes after a rollout is estimated by
the learned value, and with lambda below 1 advantages hardly reach beyond ``1 / (1 - gamma *
lambda)`` steps (17 with PPO's defaults). Even where a rollout is shorter than that, and rewards so
sparse that most rollouts hold none, longer ones were no sure help: in a corridor of 16 cells with a
reward at its end (40 000 steps, 3 seeds) PPO with lambda 0.95 took the shortest way earlier with 8
steps per rollout than with 128, and A2C came near it in two runs of three with 5, in none with 40,
which make an eighth of the gradient steps.
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
from rookery.learn.config import PPOConfig
from rookery.learn.config_base import Config
from rookery.policy.space_tree import leaf_spaces
from rookery.rollout import Rollout
from rookery.rollout.normalize import RewardScaler

LARGE_RETURNS = 100.0  # deviation; PPO learns Pendulum, 190, well only with normalize_reward
LARGE_OBSERVATION = 100.0  # root mean square of a component
FAR_APART = 1000.0  # largest component against the median one
_STEPS_FOR_REWARDS = 1_000  # what is said of rewards is said after so many env steps
_ROWS_OF_OBSERVATIONS = 1_000  # of the first rollout, spread over it


def on_minibatch(config: Config, num_envs: int) -> str | None:
    """What becomes of a minibatch that is larger than the rollout.

    Another size than the default is refused before (`PPOConfig.check`). The default is cut to the
    rollout, which matters where that has less than half of it: each epoch is one gradient step on
    few transitions of few envs. A rollout somewhat smaller than the minibatch changes nothing.
    """
    if not isinstance(config, PPOConfig):
        return None
    rows = config.num_steps * num_envs
    if 2 * rows > config.minibatch_size:
        return None
    return (
        f"minibatch_size is {config.minibatch_size}, but a rollout has {rows} transitions "
        f"(num_steps {config.num_steps} x num_envs {num_envs}), so that each epoch is one gradient "
        "step on all of them; more num_steps or num_envs make gradients less noisy"
    )


def on_rewards(config: Config, deviation: float, steps: int) -> str | None:
    """Returns so large that the errors of the learned value drown the policy's gradient.

    Said only of algorithms that can divide rewards by that deviation and were not told to.

    Args:
        config: settings of the algorithm.
        deviation: of the discounted returns seen so far.
        steps: env steps in which they were seen.
    """
    if getattr(config, "normalize_reward", True) or not deviation >= LARGE_RETURNS:
        return None
    return (
        f"discounted returns of the first {steps:,} steps have a deviation of {_round(deviation)}, "
        "and errors of the learned value as large leave the policy little of each gradient; "
        "normalize_reward=True (--normalize-reward) divides rewards by it"
    )


def _round(number: float) -> str:
    """A number that need not be exact, to be read."""
    return f"{number:,.0f}" if number < 1e9 else f"{number:.1e}"


def on_observations(config: Config, sizes: Mapping[str, float]) -> str | None:
    """Observations with numbers too large for a network, or of very different size.

    Args:
        config: settings of the algorithm.
        sizes: root mean square of each component, by a name for it.
    """
    if getattr(config, "normalize_obs", True) or not sizes:
        return None
    name = max(sizes, key=lambda each: sizes[each])
    largest, median = sizes[name], float(np.median([s for s in sizes.values() if s] or [0.0]))
    if not (largest >= LARGE_OBSERVATION or largest >= FAR_APART * median > 0.0):
        return None
    others = f", the median one {median:.2g}" if len(sizes) > 1 else ""
    return (
        f"{name} is about {largest:.2g} in size{others}, and networks learn badly from numbers far "
        "from 1; normalize_obs=True (--normalize-obs) standardises observations"
    )


def advised(
    algorithm: Algorithm, num_envs: int, own_envs: int, observation_space: spaces.Space[Any]
) -> FirstRollouts | None:
    """Say what can be said before a run; None if its rollouts need not be looked at.

    Args:
        algorithm: what learns.
        num_envs: of the run.
        own_envs: of the rollouts; fewer where several learn together.
        observation_space: of one env.
    """
    config = getattr(algorithm, "config", None)
    if not isinstance(config, Config):
        return None
    tell(on_minibatch(config, num_envs))
    modules = getattr(algorithm, "modules", None)
    return FirstRollouts(
        config, own_envs, None if modules and modules.networks() else observation_space
    )


class FirstRollouts:
    """Looks at the first rollouts of a run for what advice is about.

    Args:
        config: settings of what learns.
        num_envs: of the rollouts.
        observation_space: of one env; None where a network of the user's own reads observations,
            of which nothing is said.
    """

    def __init__(
        self, config: Config, num_envs: int, observation_space: spaces.Space[Any] | None
    ) -> None:
        self._config = config
        self._space = observation_space
        self._steps = 0
        scales_none = getattr(config, "normalize_reward", True) is False
        gamma: float = getattr(config, "gamma", 1.0)
        self._scaler = RewardScaler(num_envs, gamma) if scales_none else None

    def look(self, rollout: Rollout) -> bool:
        """Say what can be said after one more rollout; whether the next is to be looked at too."""
        is_first = not self._steps
        self._steps += rollout.num_transitions
        with np.errstate(all="ignore"):  # overflows, where warnings are errors
            observations = self._of_observations(rollout.obs) if is_first else None
            rewards = self._of_rewards(rollout)
        tell(observations)
        tell(rewards)
        return self._scaler is not None

    def _of_observations(self, obs: Tree) -> str | None:
        if self._space is None or getattr(self._config, "normalize_obs", True):
            return None
        return on_observations(self._config, component_sizes(self._space, obs))

    def _of_rewards(self, rollout: Rollout) -> str | None:
        if self._scaler is None:
            return None
        self._scaler.scale(rollout)
        if self._steps < _STEPS_FOR_REWARDS:
            return None
        deviation = float(np.sqrt(self._scaler.moments.variance))
        self._scaler = None
        return on_rewards(self._config, deviation, self._steps)


def component_sizes(space: spaces.Space[Any], obs: Tree) -> dict[str, float]:
    """The root mean square of every number in vectors of observations; images are left out.

    Args:
        space: of one env's observations.
        obs: ``[T, B, *obs]``; of many rows some are taken.
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


def tell(sentence: str | None) -> None:
    """Write a sentence to standard error, if there is one."""
    if sentence is None or sys.stderr is None or gym.logger.min_level > gym.logger.WARN:
        return
    # Nobody may read it any more, a closed file or pipe, which is no reason to end a run.
    with suppress(OSError, ValueError):
        print(f"rookery: advice: {sentence}", file=sys.stderr, flush=True)
