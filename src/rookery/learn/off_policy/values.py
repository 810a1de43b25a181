"""The base class of the algorithms that learn action values: DQN and QR-DQN."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.errors import SpaceError
from rookery.learn.off_policy.replay_learner import ReplayBatch, ReplayLearner, Target
from rookery.learn.optimizers import Adam, gradient_step, to_host
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.learn.placement import compiled
from rookery.learn.schedule import scheduled
from rookery.policy import make_policy
from rookery.policy.exploring import EpsilonGreedyPolicy
from rookery.policy.model import FlatParameters

# With 64 64, action values on CartPole diverged, and did not recover in one run of three.
HIDDEN_SIZES = (128, 128)


class ValueLoss(NamedTuple):
    """The loss of a batch.

    Attributes:
        loss: The scalar to differentiate.
        error: float32 ``[N]``, error of each transition, which determines its priority.
        scalars: Further metrics.
    """

    loss: Tensor
    error: Tensor
    scalars: Mapping[str, Tensor | float]


class ValueLearner(ReplayLearner):
    """A learner of action values with one network and a target network.

    Subclasses define the network and the loss.
    """

    policy: EpsilonGreedyPolicy

    @classmethod
    def make_policy(
        cls,
        config: Any,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        encoder: Any = None,
        network: Any = None,
    ) -> EpsilonGreedyPolicy:
        num_actions = count_actions(action_space)

        def build(
            num_features: int, widths: Sequence[int], _: Any, generator: torch.Generator
        ) -> nn.Module:
            return cls._network(config, num_actions, num_features, widths, generator)

        greedy = make_policy(
            observation_space,
            action_space,
            seed=seed,
            num_exploration=1,
            encoder=encoder,
            network=None if network is None else cls._custom_network(config, network),
            image=config.image_encoder,
            build=build if network is None else None,
            hidden_sizes=config.hidden_sizes,
            default_sizes=HIDDEN_SIZES,
            normalize_obs=config.normalize_obs,
        )
        policy = EpsilonGreedyPolicy(greedy)
        policy.epsilon = config.initial_epsilon
        return policy

    @staticmethod
    @abstractmethod
    def _network(
        config: Any,
        num_actions: int,
        num_features: int,
        widths: Sequence[int],
        generator: torch.Generator,
    ) -> nn.Module:
        """Build the network of action values behind the encoder."""

    @staticmethod
    def _custom_network(config: Any, network: Any) -> Any:
        """Return the function that builds the user's network from the two spaces."""
        return network

    def __init__(
        self,
        policy: EpsilonGreedyPolicy,
        config: Any,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
    ) -> None:
        exponent = config.priority_exponent if config.prioritized else None
        super().__init__(policy, config, num_envs, seed, peers, priority_exponent=exponent)
        flat = self.placement.flat
        self._target = Target(self.actor, flat)
        self._optimizer = Adam(flat.tensor, epsilon=config.adam_epsilon)
        self._errors = compiled(self._row_errors) if config.compile else self._row_errors

    @abstractmethod
    def loss(self, batch: ReplayBatch) -> ValueLoss:
        """Compute the loss of a batch from the result of ``self._errors(batch)``.

        This is the only definition of the objective.
        """

    @abstractmethod
    def _row_errors(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Compute the part of the loss that may be compiled.

        Returns:
            The error of each transition, float32 ``[N]``, and the estimates of the network.
        """

    def _begin(self) -> None:
        self._target.follow(1.0)

    def _step(self, progress: float) -> dict[str, float]:
        """Take one gradient step; update the target network every ``target_interval`` steps."""
        config = self.config
        batch = self._sample(scheduled(config.priority_correction, 1.0, progress))
        loss, error, scalars = self.loss(batch)
        gradient = self.placement.flat.gradient(loss)
        metrics = gradient_step(
            self._optimizer,
            loss,
            gradient,
            self._learning_rate(progress),
            config.max_grad_norm,
            {"value_loss": loss, **scalars},
            self.peers,
            len(batch.reward),
        )
        del metrics["loss"]
        if not metrics["skipped_gradient_steps"]:
            self._replay.set_errors(batch.place, to_host(error))
            self._gradient_steps += 1
            if self._gradient_steps % config.target_interval == 0:
                self._target.follow(config.target_rate)
        return metrics

    def _learning_rate(self, progress: float) -> float:
        return scheduled(self.config.learning_rate, self.config.final_learning_rate, progress)

    def _explore(self, progress: float) -> None:
        """Decrease the fraction of random actions during the first part of the training."""
        config = self.config
        explored = progress / max(config.exploration_fraction, 1e-9)
        self.policy.epsilon = scheduled(config.initial_epsilon, config.final_epsilon, explored)

    def _settings(self, progress: float) -> dict[str, float]:
        return {"epsilon": self.policy.epsilon, "learning_rate": self._learning_rate(progress)}

    def _optimizers(self) -> Mapping[str, Adam]:
        return {"optimizer": self._optimizer}

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {"target": self._target.flat}


def best_action(values: Tensor, mask: Tensor | None) -> Tensor:
    """Return the legal action with the greatest value, int64 ``[N, 1]``.

    Args:
        values: float32 ``[N, A]``, action values.
        mask: bool ``[N, A]``, True for legal actions; None allows all.
    """
    legal = values if mask is None else values.masked_fill(~mask, -torch.inf)
    return legal.argmax(1, keepdim=True)


def count_actions(action_space: spaces.Space[Any]) -> int:
    """Return the number of actions.

    Raises:
        SpaceError: the action space is not Discrete.
    """
    if not isinstance(action_space, spaces.Discrete):
        kind = type(action_space).__name__
        raise SpaceError(f"action values need a Discrete action_space, not a {kind}")
    return int(action_space.n)
