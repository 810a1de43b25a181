"""The seam between training and algorithms: rollouts go in, the policy's weights change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.policy import make_policy
from rookery.policy.base import PolicyStep
from rookery.rollout import Rollout, Tree


class LearnedPolicy(Protocol):
    """A `rookery.policy.Policy` with weights that a learner writes.

    Attributes:
        version: how many times the weights were changed.
        model: what is learned; has ``state_dict()`` and ``load_state_dict(state)``.
        rng: draws the actions.
        memory: of a recurrent policy.
    """

    version: int
    model: Any
    rng: np.random.Generator
    memory: npt.NDArray[np.float32] | None

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        """Decide for a batch of observations; see `rookery.policy.Policy`."""

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        """Value of a batch of observations."""

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Make drawn actions fit the env's action space."""


class Learner(ABC):
    """One algorithm. Made as ``Learner(policy, config, num_envs, seed)``.

    A learner is given every rollout once, right after it was collected. One that learns from old
    experience keeps a replay of its own.

    Attributes:
        reads_values: whether it reads a rollout's ``log_prob`` and values; collectors need not
            compute them otherwise.
        keeps_replay: whether it keeps experience beyond an update.
        log_steps: env steps between two lines of metrics; 0 makes one for each update.
    """

    reads_values: ClassVar[bool] = True
    keeps_replay: ClassVar[bool] = False
    log_steps: ClassVar[int] = 0

    @staticmethod
    @abstractmethod
    def make_policy(
        config: Any,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> Any:
        """Build the policy that acts while this algorithm learns, a `LearnedPolicy`.

        Its deterministic actions are those of evaluation.

        Raises:
            SpaceError: a space that the algorithm cannot do with.
        """

    @abstractmethod
    def __init__(self, policy: Any, config: Any, num_envs: int, seed: int = 0) -> None:
        """Prepare to learn the weights of ``policy.model``, in place."""

    @abstractmethod
    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        """Learn from a rollout; it may be overwritten after the call.

        Args:
            rollout: collected under the present weights.
            progress: how much of the training is done, from 0 to 1; moves the schedules.

        Returns:
            Metrics by name; docs/metrics.md explains them.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything but the policy that is needed to go on, as plain data."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""

    def abandon_episodes(self) -> None:
        """Note that all envs were reset from outside: nobody will see how their episodes end."""
        return

    def replay_state(self) -> dict[str, Any] | None:
        """The experience it keeps, as plain data; None if it keeps none, or not for later."""
        return None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        """Take over what `replay_state` gave."""
        raise NotImplementedError("this learner keeps no experience")


def actor_critic_policy(
    config: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    seed: int,
    memory_size: int = 0,
) -> Any:
    """Build the policy of an algorithm that learns actor and critic, from its settings."""
    return make_policy(
        observation_space,
        action_space,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        normalize_obs=config.normalize_obs,
        memory_size=memory_size,
        seed=seed,
    )
