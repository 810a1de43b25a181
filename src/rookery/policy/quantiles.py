"""Networks of return distributions, as quantiles: Dabney et al. (2018)."""

from __future__ import annotations

from torch import Tensor, nn


class Quantiles(nn.Module):
    """Quantiles of the return of every action; their mean is the action's value.

    Args:
        network: anything to float32 ``[N, num_actions * num_quantiles]``, actions outermost.
        num_actions: A.
        num_quantiles: K.
    """

    def __init__(self, network: nn.Module, num_actions: int, num_quantiles: int) -> None:
        super().__init__()
        self.network = network
        self.num_actions, self.num_quantiles = num_actions, num_quantiles

    def quantiles(self, read: Tensor) -> Tensor:
        """Give the quantiles, float32 ``[N, A, K]``, at the midpoints ``(2 k + 1) / (2 K)``."""
        outputs: Tensor = self.network(read)
        return outputs.view(-1, self.num_actions, self.num_quantiles)

    def forward(self, read: Tensor) -> Tensor:
        """Give the action values, float32 ``[N, A]``: ``Q(s, a) = mean_k theta_k(s, a)``."""
        return self.quantiles(read).mean(2)
