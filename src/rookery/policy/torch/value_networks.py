"""Networks of action values for off-policy algorithms: values, quantiles and critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.policy.torch.encoders import count_features
from rookery.policy.torch.layers import Linear, StackedMLP
from rookery.policy.torch.networks import head_gains


class QNetwork(nn.Module):
    """Action values of all actions, from features ``[N, F]`` to ``[N, num_actions]``.

    With ``dueling``, the network has a tower for the value and a tower for the advantages (Wang et
    al. 2016, equation 9): ``Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)``.

    Args:
        num_features: F, number of features.
        num_actions: number of actions.
        hidden_sizes: widths of the towers' layers.
        activation: "tanh" or "relu", in the towers.
        dueling: whether to use separate towers for value and advantages.
        generator: generator of the initial weights.
        is_orthogonal: whether the initial weights are orthogonal; see `ActorCritic`.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "tanh",
        *,
        dueling: bool = True,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__()
        sizes = (num_features, *hidden_sizes)
        self.towers = StackedMLP(
            1 + dueling, sizes, activation, generator=generator, is_orthogonal=is_orthogonal
        )
        actor_gain, critic_gain = head_gains(is_orthogonal)
        self.actor = Linear(sizes[-1], num_actions, actor_gain, generator)
        self.critic = Linear(sizes[-1], 1, critic_gain, generator) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.towers(features)
        towers = hidden if hidden.dim() == 3 else hidden.expand(2, -1, -1)
        outputs: Tensor = self.actor(towers[0])
        if self.critic is None:
            return outputs
        value: Tensor = self.critic(towers[1])
        return outputs + (value - outputs.mean(1, keepdim=True))


class TwinCritic(nn.Module):
    """K critics of observations and continuous actions (SAC, TD3), computed as one.

    Args:
        num_features: F, number of features of an observation.
        num_actions: A, number of components of an action.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        num_critics: K, number of critics.
        generator: generator of the initial weights.
        is_orthogonal: whether the initial weights are orthogonal; see `ActorCritic`.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        *,
        num_critics: int = 2,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__()
        sizes = (num_features + num_actions, *hidden_sizes, 1)
        self.layers = StackedMLP(num_critics, sizes, activation, 1.0, generator, is_orthogonal)

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """Return the values of features ``[N, F]`` and actions ``[N, A]``: float32 ``[K, N]``."""
        values: Tensor = self.layers(torch.cat([features, action], dim=1)).squeeze(2)
        return values


class QuantileNetwork(QNetwork):
    """Quantiles of the return of every action (Dabney et al. 2018); their mean is the value.

    Args:
        num_features: F, number of features.
        num_actions: A, number of actions.
        num_quantiles: K, number of quantiles per action.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        generator: generator of the initial weights.
        is_orthogonal: whether the initial weights are orthogonal; see `ActorCritic`.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        num_quantiles: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "tanh",
        *,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__(
            num_features,
            num_actions * num_quantiles,
            hidden_sizes,
            activation,
            dueling=False,
            generator=generator,
            is_orthogonal=is_orthogonal,
        )
        self.num_quantiles = num_quantiles

    def quantiles(self, features: Tensor) -> Tensor:
        """Return the quantiles at the midpoints ``(2 k + 1) / (2 K)``: float32 ``[N, A, K]``."""
        outputs = super().forward(features)
        return outputs.view(outputs.shape[0], -1, self.num_quantiles)

    def forward(self, features: Tensor) -> Tensor:
        """Return the action values ``Q(s, a) = mean_k theta_k(s, a)``: float32 ``[N, A]``."""
        return self.quantiles(features).mean(2)


class CustomQuantiles(nn.Module):
    """Quantiles of the return of every action, computed by a custom network.

    Args:
        network: maps observations to float32 ``[N, num_actions * num_quantiles]``; the quantiles of
            one action are adjacent.
        num_quantiles: K, number of quantiles per action.
    """

    def __init__(self, network: nn.Module, num_quantiles: int) -> None:
        super().__init__()
        self.network = network
        self.num_quantiles = num_quantiles

    def quantiles(self, read: Tensor) -> Tensor:
        """Return the quantiles, float32 ``[N, A, K]``."""
        outputs: Tensor = self.network(read)
        return outputs.view(outputs.shape[0], -1, self.num_quantiles)

    def forward(self, read: Tensor) -> Tensor:
        """Return the action values, float32 ``[N, A]``."""
        return self.quantiles(read).mean(2)


class Critics(nn.Module):
    """K critics with a common encoder, which share no weights with the actor.

    Args:
        encoder: maps normalized observations to features ``[N, F]``.
        observation_space: observation space of one env.
        num_actions: A, number of components of an action.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        num_critics: K, number of critics.
        generator: generator of the critics' initial weights.
        is_orthogonal: whether the initial weights are orthogonal; see `ActorCritic`.
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
        """Return the values of normalized observations and actions ``[N, A]``: ``[K, N]``."""
        values: Tensor = self.critics(self.encoder(obs), action)
        return values
