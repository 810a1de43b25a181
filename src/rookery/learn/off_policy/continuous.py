"""The base class of the algorithms with an actor and two critics: SAC and TD3."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.errors import SpaceError
from rookery.learn.config_base import noise_settings
from rookery.learn.off_policy.replay_learner import ReplayLearner, Target
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.learn.schedule import scheduled
from rookery.policy import make_policy
from rookery.policy.base import WEIGHTS, seed_for
from rookery.policy.exploring import ExploringPolicy, SquashedPolicy
from rookery.policy.model import FlatParameters
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.torch.encoders import FeatureEncoder
from rookery.policy.torch.networks import SquashedActor
from rookery.policy.torch.policy_module import PolicyModule
from rookery.policy.torch.value_networks import Critics

_CRITICS = 1  # number of the critics among the networks that draw initial weights; the actor is 0
_NO_LIMIT = float("inf")


class TwinCriticLearner(ReplayLearner):
    """A learner of an actor and two critics with target networks.

    Subclasses define the losses and the exploration.
    """

    policy: SquashedPolicy

    @classmethod
    def make_policy(
        cls,
        config: Any,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        encoder: Any = None,
        network: Any = None,
    ) -> SquashedPolicy:
        inner = actor_policy(config, observation_space, action_space, seed, encoder, network)
        policy = cls._exploring(config, inner)
        policy.is_uniform = config.warmup_steps > 0
        return policy

    @staticmethod
    @abstractmethod
    def _exploring(config: Any, inner: NetworkPolicy) -> SquashedPolicy:
        """Return the policy of the actor ``inner`` with the algorithm's exploration."""

    def __init__(
        self,
        policy: SquashedPolicy,
        config: Any,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
        *,
        with_path: bool = False,
    ) -> None:
        super().__init__(policy, config, num_envs, seed, peers, with_path=with_path)
        self._critics = critics_for(policy, self.actor, config, seed).to(self.placement.device)
        self._critic_flat = FlatParameters(self._critics)
        self._target_critics = Target(self._critics, self._critic_flat)
        self._actor_optimizer = Adam(self.placement.flat.tensor, epsilon=config.adam_epsilon)
        self._critic_optimizer = Adam(self._critic_flat.tensor, epsilon=config.adam_epsilon)

    def _improve_critics(self, loss: Tensor, values: Tensor, rate: float) -> dict[str, float]:
        """Take one gradient step on the critics; return metrics.

        Args:
            loss: Loss of the critics.
            values: float32 ``[2, N]``, the critics' values of the batch, for metrics.
            rate: The learning rate.
        """
        gradient = self._critic_flat.gradient(loss)
        scalars = {"value_loss": loss, "action_value": values.mean()}
        peers, rows = self.peers, values.shape[1]
        return gradient_step(
            self._critic_optimizer, loss, gradient, rate, _NO_LIMIT, scalars, peers, rows
        )

    def _improve_actor(
        self,
        loss: Tensor,
        num_rows: int,
        rate: float,
        scalars: Mapping[str, Tensor | float] = MappingProxyType({}),
    ) -> dict[str, float]:
        """Take one gradient step on the actor; return metrics, including ``scalars``.

        ``loss`` is a mean over ``num_rows`` rows.
        """
        gradient = self.placement.flat.gradient(loss)
        peers = self.peers
        return gradient_step(
            self._actor_optimizer, loss, gradient, rate, _NO_LIMIT, scalars, peers, num_rows
        )

    def _learning_rate(self, progress: float) -> float:
        return scheduled(self.config.learning_rate, None, progress)

    def _explore(self, progress: float) -> None:
        self.policy.is_uniform = not self._gradient_steps and self._budget.is_warming_up

    def _settings(self, progress: float) -> dict[str, float]:
        return {"learning_rate": self._learning_rate(progress)}

    def _optimizers(self) -> Mapping[str, Adam]:
        return {
            "actor_optimizer": self._actor_optimizer,
            "critic_optimizer": self._critic_optimizer,
        }


def actor_policy(
    config: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    seed: int,
    encoder: Any,
    network: Any,
) -> NetworkPolicy:
    """Build the policy of a `SquashedActor`.

    Args:
        config: The settings.
        observation_space: Observation space of one env.
        action_space: Action space of one env, a bounded Box.
        seed: Seed of the weights and of the actions.
        encoder: Custom encoder, copied for the critics; see `PolicyModule`.
        network: Custom actor, from observations to outputs ``[N, 2 A]``.

    Raises:
        SpaceError: the action space is not a bounded Box.
    """
    if not isinstance(action_space, spaces.Box):
        raise SpaceError(
            f"this algorithm needs a bounded Box of floats; action_space is {action_space}"
        )

    def build(
        num_features: int, widths: Sequence[int], layout: Any, generator: torch.Generator
    ) -> SquashedActor:
        return SquashedActor(
            num_features,
            layout.num_columns,
            widths,
            config.activation,
            generator=generator,
            shows_latent=layout.num_latent > 0,
            is_orthogonal=config.orthogonal_init,
        )

    return make_policy(
        observation_space,
        action_space,
        seed=seed,
        num_exploration=2,
        encoder=encoder,
        network=network,
        image=config.image_encoder,
        build=build if network is None else None,
        hidden_sizes=hidden_sizes(config),
        normalize_obs=config.normalize_obs,
        squashed=True,
        **noise_settings(config),
    )


def critics_for(policy: ExploringPolicy, actor: PolicyModule, config: Any, seed: int) -> Critics:
    """Build two critics, with random weights that do not depend on the actor's.

    Their encoder starts as a copy of the actor's. With a custom actor, which has no encoder, it is
    the built-in encoder.
    """
    generator = torch.Generator().manual_seed(seed_for(seed, WEIGHTS, _CRITICS))
    encoder: nn.Module = copy.deepcopy(actor.encoder).cpu()
    if isinstance(encoder, nn.Identity):
        image = config.image_encoder
        encoder = FeatureEncoder(policy.observation_space, image=image, generator=generator)
    return Critics(
        encoder,
        policy.observation_space,
        policy.layout.num_columns,
        hidden_sizes(config),
        config.activation,
        generator=generator,
        is_orthogonal=config.orthogonal_init,
    )


def hidden_sizes(config: Any) -> tuple[int, ...]:
    """Return the widths of the hidden layers of actor and critics."""
    return (64, 64) if config.hidden_sizes is None else tuple(config.hidden_sizes)
