"""Deep Q-learning, to be read from top to bottom.

Mnih et al. (2015) with extensions from Hessel et al. (2018). Each extension is a setting: double
Q-learning (van Hasselt et al. 2016), dueling networks (Wang et al. 2016), n-step returns (Sutton
1988) and prioritised replay (Schaul et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.learn.config import DQNConfig
from rookery.learn.off_policy.replay_learner import ReplayBatch
from rookery.learn.off_policy.values import ValueLearner, ValueLoss, best_action
from rookery.policy.torch.value_networks import QNetwork


class DQN(ValueLearner):
    """The DQN learner, which writes the weights of ``policy.model`` and the policy's epsilon."""

    config: DQNConfig

    @staticmethod
    def _network(
        config: DQNConfig,
        num_actions: int,
        num_features: int,
        widths: Sequence[int],
        generator: torch.Generator,
    ) -> QNetwork:
        return QNetwork(
            num_features,
            num_actions,
            widths,
            config.activation,
            dueling=config.dueling,
            generator=generator,
            is_orthogonal=config.orthogonal_init,
        )

    def loss(self, batch: ReplayBatch) -> ValueLoss:
        error, values = self._errors(batch)
        loss = (batch.weight * huber(error)).mean()
        scalars = {"action_value": values.mean(), "td_error": error.abs().mean()}
        return ValueLoss(loss, error, scalars)

    def _row_errors(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Return ``Q(s, a)`` minus its target, float32 ``[N]``, and all values of s, ``[N, A]``."""
        values = self.actor.run(batch.obs).outputs
        return values.gather(1, batch.action).squeeze(1) - self._targets(batch), values

    @torch.no_grad()
    def _targets(self, batch: ReplayBatch) -> Tensor:
        """Return the targets of the action values, float32 ``[N]``.

        ``r + discount * Q'(s', argmax_a Q'(s', a))``, Mnih et al. (2015), algorithm 1, with the
        target network's Q'. Double Q-learning takes the argmax of the online network's Q, see van
        Hasselt et al. (2016), equation 4. The argmax is over the legal actions.
        """
        values = self._target.module.run(batch.next_obs).outputs
        chooser = self.actor.run(batch.next_obs).outputs if self.config.double else values
        best = values.gather(1, best_action(chooser, batch.next_mask)).squeeze(1)
        return batch.reward + batch.discount * best


def huber(error: Tensor) -> Tensor:
    """Return ``e^2 / 2`` where ``|e| <= 1``, else ``|e| - 1 / 2`` (Huber 1964).

    The clipped error term of Mnih et al. (2015), "Methods", has the same gradient.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none")
