"""Critics of observations and continuous actions, over an encoder of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.policy.torch.encoders import count_features
from rookery.policy.torch.networks import TwinCritic


class Critics(nn.Module):
    """K critics over one encoder; they share no weights with the actor.

    Args:
        encoder: from normalised observations to features ``[N, F]``.
        observation_space: of one env.
        num_actions: A, how many numbers an action has.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        num_critics: K.
        generator: draws the initial weights of the critics.
        is_orthogonal: whether they are orthogonal; see `rookery.policy.torch.networks.ActorCritic`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        observation_space: spaces.Space[Any],
        num_actions: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        *,
        num_critics: int = 2,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.critics = TwinCritic(
            count_features(encoder, observation_space),
            num_actions,
            hidden_sizes,
            activation,
            num_critics=num_critics,
            generator=generator,
            is_orthogonal=is_orthogonal,
        )

    def forward(self, obs: Tree, action: Tensor) -> Tensor:
        """Values of normalised observations and actions ``[N, A]``: float32 ``[K, N]``."""
        values: Tensor = self.critics(self.encoder(obs), action)
        return values
