"""The seam between training and algorithms: rollouts go in, the policy's weights change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium.spaces as spaces

from rookery.common.trees import merge_axes, take
from rookery.learn.config_base import noise_settings
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy import make_policy
from rookery.policy.base import Policy
from rookery.rollout import Rollout


class RolloutLearner(ABC):
    """What algorithms and learners have in common: rollouts go in, a state comes out.

    Attributes:
        collectors: where the policy may act, see ``TrainSettings.collector``; "auto" is the first.
        reads_values: whether it reads a rollout's ``log_prob`` and values; collectors need not
            compute them otherwise.
        keeps_replay: whether it keeps experience beyond an update.
        log_steps: env steps between two lines of metrics; 0 makes one for each update.
        latest_metrics: those of which a line has the latest value, not the mean over its updates:
            counters, and where schedules stand.
        summed_metrics: those of which a line has the sum: what was counted in an update.
    """

    collectors: tuple[str, ...] = ("caller", "workers")
    reads_values: bool = True
    keeps_replay: bool = False
    log_steps: int = 0
    latest_metrics: tuple[str, ...] = ("gradient_steps", "epsilon", "learning_rate", "clip_range")
    summed_metrics: tuple[str, ...] = ("skipped_gradient_steps",)

    @abstractmethod
    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from a rollout; it may be overwritten after the call.

        Args:
            rollout: what was experienced since the last call.
            progress: how much of the training is done, from 0 to 1; moves schedules.

        Returns:
            Metrics by name; docs/metrics.md explains those of this library.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything but the policy that is needed to go on.

        Plain data: dicts, lists, tuples, numbers, strings, arrays of numpy and tensors of torch.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""

    def replay_state(self) -> dict[str, Any] | None:
        """The experience it keeps, as plain data; None if it keeps none, or not for later."""
        return None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        """Take over what `replay_state` gave."""
        raise NotImplementedError(f"{type(self).__name__} keeps no experience")


class Algorithm(RolloutLearner):
    """What a run is trained with. Deriving from it is convenient; having its methods is enough.

    A run asks `make_policy` for who acts, then calls `start` once and `update` with each rollout.

    Attributes:
        num_steps: steps of every env between two calls of `update`.
        name: what it is called in folders and pictures.
        collectors: where the policy may act, see `TrainSettings`; "auto" is the first.
        reads_values: whether it reads a rollout's ``log_prob`` and values; collectors need not
            compute them otherwise.
        keeps_replay: whether it keeps experience beyond an update.
        log_steps: env steps between two lines of metrics; 0 makes one for each update.
        latest_metrics: those of which a line has the latest value, not the mean over its updates:
            counters, and where schedules stand.
        summed_metrics: those of which a line has the sum: what was counted in an update.
    """

    num_steps: int
    name: str = ""

    @abstractmethod
    def make_policy(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], seed: int
    ) -> Policy:
        """Build the policy that acts while this algorithm learns.

        Its deterministic actions are those of evaluation. ``policy.model`` holds what is learned.

        Args:
            observation_space: of one env.
            action_space: of one env.
            seed: of the initial weights and the drawn actions.

        Raises:
            SpaceError: a space that the algorithm cannot do with.
        """

    @abstractmethod
    def start(self, policy: Policy, num_envs: int, seed: int) -> None:
        """Prepare to learn the weights of ``policy.model``, which are written in place."""


class Learner(RolloutLearner):
    """One algorithm of this library. Made as ``Learner(policy, config, num_envs, seed, peers)``.

    A learner is given every rollout once, right after it was collected. One that learns from old
    experience keeps a replay of its own.

    Attributes:
        peers: those who learn these weights together; each has rollouts of its own.
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

        ``encoder`` and ``network`` are the user's own, see
        `rookery.policy.torch.policy_module.PolicyModule`.
        """

    @abstractmethod
    def __init__(
        self, policy: Any, config: Any, num_envs: int, seed: int = 0, peers: Peers = ALONE
    ) -> None:
        """Prepare to learn the weights of ``policy.model``, in place."""


def actor_critic_policy(
    config: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    seed: int,
    encoder: Any = None,
    network: Any = None,
) -> Policy:
    """Build the policy of an algorithm with actor and critic; see `Algorithm.make_policy`."""
    return make_policy(
        observation_space,
        action_space,
        encoder=encoder,
        network=network,
        image=config.image_encoder,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        normalize_obs=config.normalize_obs,
        orthogonal_init=getattr(config, "orthogonal_init", True),
        **noise_settings(config),
        core=config.recurrent,
        core_size=config.memory_size,
        seed=seed,
    )


def observe(rollout: Rollout, model: Any, peers: Peers = ALONE) -> None:
    """Merge everybody's valid observations into the statistics of ``model``, if it has any."""
    if getattr(model.module, "normalizer", None) is not None:
        model.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()), peers.gather)
