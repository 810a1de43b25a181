"""Networks of return distributions, as quantiles: Dabney et al. (2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rookery.policy.torch.networks import QNetwork


class QuantileNetwork(QNetwork):
    """Quantiles of the return of every action; their mean is the action's value.

    Args:
        num_features: F, width of what is read.
        num_actions: A.
        num_quantiles: K.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        generator: draws the initial weights.
        is_orthogonal: whether they are orthogonal; see `rookery.policy.torch.networks.ActorCritic`.
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
        """Give the quantiles, float32 ``[N, A, K]``, at the midpoints ``(2 k + 1) / (2 K)``."""
        outputs = super().forward(features)
        return outputs.view(outputs.shape[0], -1, self.num_quantiles)

    def forward(self, features: Tensor) -> Tensor:
        """Give the action values, float32 ``[N, A]``: ``Q(s, a) = mean_k theta_k(s, a)``."""
        return self.quantiles(features).mean(2)


class OwnQuantiles(nn.Module):
    """The same around a network of the user's.

    Args:
        network: from observations to float32 ``[N, num_actions * num_quantiles]``, the quantiles
            of an action side by side.
        num_quantiles: K.
    """

    def __init__(self, network: nn.Module, num_quantiles: int) -> None:
        super().__init__()
        self.network = network
        self.num_quantiles = num_quantiles

    def quantiles(self, read: Tensor) -> Tensor:
        """Give the quantiles, float32 ``[N, A, K]``."""
        outputs: Tensor = self.network(read)
        return outputs.view(outputs.shape[0], -1, self.num_quantiles)

    def forward(self, read: Tensor) -> Tensor:
        """Give the action values, float32 ``[N, A]``."""
        return self.quantiles(read).mean(2)
