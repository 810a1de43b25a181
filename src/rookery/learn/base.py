"""The interface between runs and algorithms.

A run passes rollouts to `RolloutLearner.update`, which trains the policy's weights in place.
`Algorithm` is the form that users write, `Learner` the form of the algorithms of this library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium.spaces as spaces

from rookery.common.trees import merge_axes, take
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.base import Policy
from rookery.rollout import Rollout


class RolloutLearner(ABC):
    """The common part of `Algorithm` and `Learner`: it learns from rollouts, and has a state.

    Attributes:
        collectors: Places where the policy may act, see ``TrainSettings.collector``; "auto" chooses
            the first.
        reads_values: True if `update` reads a rollout's ``log_prob`` and values; otherwise
            collectors need not compute these.
        keeps_replay: True if experience is kept after an update.
        log_steps: Env steps between two log lines; 0 writes a line for each update.
        latest_metrics: Names of metrics that are logged with their latest value, such as
            counters and schedules. Other metrics are logged with their mean over the updates
            since the last line.
        summed_metrics: Names of metrics that are logged with their sum over the updates.
    """

    collectors: tuple[str, ...] = ("caller", "workers")
    reads_values: bool = True
    keeps_replay: bool = False
    log_steps: int = 0
    latest_metrics: tuple[str, ...] = ("gradient_steps", "epsilon", "learning_rate", "clip_range")
    summed_metrics: tuple[str, ...] = ("skipped_gradient_steps",)

    @abstractmethod
    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from a rollout; the caller may overwrite its arrays after the call.

        Args:
            rollout: The experience since the last call.
            progress: Progress of the training, from 0 to 1, for schedules.

        Returns:
            Metrics by name; docs/metrics.md explains those of this library.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything except the policy that is needed to resume.

        The state is plain data: dicts, lists, tuples, numbers, strings, numpy arrays and tensors.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""

    def replay_state(self) -> dict[str, Any] | None:
        """Return the stored experience as plain data; None if there is none to save."""
        return None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        """Restore experience that `replay_state` returned."""
        raise NotImplementedError(f"{type(self).__name__} keeps no experience")


class Algorithm(RolloutLearner):
    """An algorithm that users pass to a run; a class with the same methods works too.

    A run calls `make_policy`, then `start` once, then `update` with each rollout. The attributes of
    `RolloutLearner` describe the algorithm further.

    Attributes:
        num_steps: Steps of every env between two calls of `update`.
        name: Name of the algorithm in folders and pictures.
    """

    num_steps: int
    name: str = ""

    @abstractmethod
    def make_policy(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], seed: int
    ) -> Policy:
        """Build the policy that acts while this algorithm learns.

        Evaluations use its deterministic actions. ``policy.model`` holds the trained parameters.

        Args:
            observation_space: Observation space of one env.
            action_space: Action space of one env.
            seed: Seed of the initial weights and of the sampled actions.

        Raises:
            SpaceError: the algorithm does not support a space.
        """

    @abstractmethod
    def start(self, policy: Policy, num_envs: int, seed: int) -> None:
        """Prepare to train the weights of ``policy.model`` in place."""


class Learner(RolloutLearner):
    """An algorithm of this library, created as ``Learner(policy, config, num_envs, seed, peers)``.

    A learner receives every rollout once, right after it was collected. A learner that uses older
    experience has a replay buffer.

    Attributes:
        peers: Learners that train the same weights together, each with other rollouts.
    """

    peers: Peers

    @staticmethod
    @abstractmethod
    def make_policy(
        config: Any,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        encoder: Any = None,
        network: Any = None,
    ) -> Any:
        """Build the policy that acts while this algorithm learns; see `Algorithm.make_policy`.

        ``encoder`` and ``network`` are custom modules, see
        `rookery.policy.torch.policy_module.PolicyModule`.
        """

    @abstractmethod
    def __init__(
        self, policy: Any, config: Any, num_envs: int, seed: int = 0, peers: Peers = ALONE
    ) -> None:
        """Prepare to train the weights of ``policy.model`` in place."""


def observe(rollout: Rollout, model: Any, peers: Peers = ALONE) -> None:
    """Merge the valid observations of all learners into the statistics of ``model``, if any."""
    if getattr(model.module, "normalizer", None) is not None:
        model.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()), peers.gather)
