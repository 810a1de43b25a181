"""Critics of observations and continuous actions, with an encoder of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.policy.encoders import (
    EncoderFactory,
    FeatureEncoder,
    count_features,
    require_module,
)
from rookery.policy.networks import TwinCritic
from rookery.rollout.tree import Tree


class Critics(nn.Module):
    """K critics over one encoder; they share no weights with the actor.

    Args:
        observation_space: of one env.
        num_actions: A, how many numbers an action has.
        encoder: the user's own, as `rookery.policy.policy_module.PolicyModule` takes it.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        num_critics: K.
        seed: of the initial weights.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        num_actions: int,
        *,
        encoder: EncoderFactory | Mapping[str, EncoderFactory] | None = None,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        num_critics: int = 2,
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):  # modules of the user's draw from the global one
            torch.manual_seed(seed)
            if encoder is None or isinstance(encoder, Mapping):
                built = FeatureEncoder(observation_space, encoder, generator=generator)
                self.encoder: nn.Module = built
                num_features = built.num_features
            else:
                self.encoder = require_module("encoder", encoder(observation_space))
                num_features = count_features(self.encoder, observation_space)
        self.critics = TwinCritic(
            num_features,
            num_actions,
            hidden_sizes,
            activation,
            num_critics=num_critics,
            generator=generator,
        )

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        """Values of normalised observations and actions ``[N, A]``: float32 ``[K, N]``."""
        values: Tensor = self.critics(self.encoder(obs), action)
        return values
