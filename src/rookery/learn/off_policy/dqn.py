"""Deep Q-learning, to be read from top to bottom.

Mnih et al. (2015) with what Hessel et al. (2018) found to help: double Q-learning (van Hasselt et
al. 2016), dueling networks (Wang et al. 2016), returns of n steps (Sutton 1988) and prioritised
replay (Schaul et al. 2016), each of them a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.learn.config import DQNConfig
from rookery.learn.off_policy.replay_learner import Batch
from rookery.learn.off_policy.values import (
    ValueLearner,
    ValueLoss,
    best_action,
    count_actions,
    epsilon_greedy_policy,
)
from rookery.policy.exploring import EpsilonGreedyPolicy
from rookery.policy.torch.value_networks import QNetwork


class DQN(ValueLearner):
    """The learner. It writes the weights of ``policy.model``, and the policy's epsilon."""

    config: DQNConfig

    @staticmethod
    def make_policy(
        config: DQNConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        encoder: Any = None,
        network: Any = None,
    ) -> EpsilonGreedyPolicy:
        num_actions = count_actions(action_space)

        def build(
            num_features: int, widths: Sequence[int], _: Any, generator: torch.Generator
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

        return epsilon_greedy_policy(
            config, observation_space, action_space, seed, encoder, network, build
        )

    def loss(self, batch: Batch) -> ValueLoss:
        error, values = self._errors(batch)
        loss = (batch.weight * huber(error)).mean()
        told = {"action_value": values.mean(), "td_error": error.abs().mean()}
        return ValueLoss(loss, error, told)

    def _row_errors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """``Q(s, a)`` minus what it should be, float32 ``[N]``; and all Q of s, ``[N, A]``."""
        values = self.actor.run(batch.obs).outputs
        return values.gather(1, batch.action).squeeze(1) - self._targets(batch), values

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Tensor:
        """What the action values should be, float32 ``[N]``.

        ``r + discount * Q'(s', argmax_a Q'(s', a))``, Mnih et al. (2015), algorithm 1, with the
        target network's Q'; double Q-learning takes the argmax of the online network's Q, van
        Hasselt et al. (2016), equation 4. The argmax is over the legal actions.
        """
        values = self._target.module.run(batch.next_obs).outputs
        chooser = self.actor.run(batch.next_obs).outputs if self.config.double else values
        best = values.gather(1, best_action(chooser, batch.next_mask)).squeeze(1)
        return batch.reward + batch.discount * best


def huber(error: Tensor) -> Tensor:
    """``e^2 / 2`` where ``|e| <= 1``, else ``|e| - 1 / 2``: Huber (1964).

    Mnih et al. (2015), "Methods", clip the error term likewise.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none")
