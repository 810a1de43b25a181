"""Deep Q-learning, to be read from top to bottom.

Mnih et al. (2015) with what Hessel et al. (2018) found to help: double Q-learning (van Hasselt et
al. 2016), dueling networks (Wang et al. 2016), returns of n steps (Sutton 1988) and prioritised
replay (Schaul et al. 2016), each of them a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium.spaces as spaces
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.learn.config import DQNConfig
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.placement import compiled
from rookery.learn.replay_learner import Batch, ReplayLearner
from rookery.learn.schedule import scheduled
from rookery.learn.target import Target, to_host
from rookery.learn.values import best_action, count_actions, epsilon_at, width_of
from rookery.policy import make_policy
from rookery.policy.epsilon_greedy import EpsilonGreedyPolicy
from rookery.policy.flat import FlatParameters
from rookery.policy.networks import QNetwork


class DQN(ReplayLearner):
    """The learner. It writes the weights of ``policy.model``, and the policy's epsilon."""

    policy: EpsilonGreedyPolicy
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

        def build(num_features: int, _: Any, generator: torch.Generator) -> QNetwork:
            return QNetwork(
                num_features,
                num_actions,
                width_of(config, observation_space, encoder),
                config.activation,
                dueling=config.dueling,
                generator=generator,
            )

        greedy = make_policy(
            observation_space,
            action_space,
            seed=seed,
            num_exploration=1,
            encoder=encoder,
            network=network,
            image=config.image_encoder,
            build=build if network is None else None,
            normalize_obs=config.normalize_obs,
        )
        policy = EpsilonGreedyPolicy(greedy)
        policy.epsilon = config.initial_epsilon
        return policy

    def __init__(
        self, policy: EpsilonGreedyPolicy, config: DQNConfig, num_envs: int, seed: int = 0
    ) -> None:
        exponent = config.priority_exponent if config.prioritized else None
        super().__init__(policy, config, num_envs, seed, priority_exponent=exponent)
        flat = self.placement.flat
        self._target = Target(self.actor, flat)
        self._optimizer = Adam(flat.tensor, epsilon=config.adam_epsilon)
        self._errors = compiled(self._td_errors) if config.compile else self._td_errors

    def _begin(self) -> None:
        self._target.follow(1.0)

    def _step(self, progress: float) -> dict[str, float]:
        """Take one gradient step on the error of the action values."""
        config = self.config
        batch = self._sample(scheduled(config.priority_correction, 1.0, progress))
        rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        error, values = self._errors(batch)
        loss = (batch.weight * huber(error)).mean()
        gradient = self.placement.flat.gradient(loss)
        told = {
            "value_loss": loss,
            "action_value": values.mean(),
            "td_error": error.abs().mean(),
        }
        metrics = gradient_step(self._optimizer, loss, gradient, rate, config.max_grad_norm, told)
        del metrics["loss"]
        if not metrics["skipped_gradient_steps"]:
            self._replay.set_errors(batch.place, to_host(error))
            self._gradient_steps += 1
            if self._gradient_steps % config.target_interval == 0:
                self._target.follow(config.target_rate)
        return metrics

    def _td_errors(self, batch: Batch) -> tuple[Tensor, Tensor]:
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

    def _explore(self, progress: float) -> None:
        self.policy.epsilon = epsilon_at(self.config, progress)

    def _settings(self, progress: float) -> dict[str, float]:
        rate = scheduled(self.config.learning_rate, self.config.final_learning_rate, progress)
        return {"epsilon": self.policy.epsilon, "learning_rate": rate}

    def _optimizers(self) -> Mapping[str, Adam]:
        return {"optimizer": self._optimizer}

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {"target": self._target.flat}


def huber(error: Tensor) -> Tensor:
    """``e^2 / 2`` where ``|e| <= 1``, else ``|e| - 1 / 2``: Huber (1964).

    Mnih et al. (2015), "Methods", clip the error term likewise.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none")
