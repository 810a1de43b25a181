"""What learners of continuous actions share: SAC and TD3."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import nn

from rookery.errors import SpaceError
from rookery.policy import make_policy
from rookery.policy.critics import Critics
from rookery.policy.encoders import FeatureEncoder
from rookery.policy.exploring import ExploringPolicy
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.networks import SquashedActor
from rookery.policy.policy_module import PolicyModule
from rookery.policy.travel import WEIGHTS, seed_for

_CRITICS = 1  # the second of the networks that draw initial weights


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
        config: the settings.
        observation_space: of one env.
        action_space: of one env, a bounded Box.
        seed: of the weights and of the actions.
        encoder: the user's own, of which actor and critics have one each; see `PolicyModule`.
        network: the user's own actor, from observations to outputs ``[N, 2 A]``.

    Raises:
        SpaceError: actions are of another kind, or without bounds.
    """
    if not isinstance(action_space, spaces.Box):
        raise SpaceError(f"it acts in a bounded Box of floats; action_space is {action_space}")

    def build(num_features: int, layout: Any, generator: torch.Generator) -> SquashedActor:
        sizes = hidden_sizes(config)
        return SquashedActor(
            num_features, layout.num_columns, sizes, config.activation, generator=generator
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
        normalize_obs=config.normalize_obs,
        squashed=True,
    )


def critics_for(policy: ExploringPolicy, actor: PolicyModule, config: Any, seed: int) -> Critics:
    """Build two critics, whose weights are drawn apart from the actor's.

    Their encoder begins as a copy of the actor's. Beside a whole network of the user's, which has
    none, it is the built-in one.
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
    )


def hidden_sizes(config: Any) -> tuple[int, ...]:
    """The widths of the hidden layers of actor and critics."""
    return (64, 64) if config.hidden_sizes is None else tuple(config.hidden_sizes)
