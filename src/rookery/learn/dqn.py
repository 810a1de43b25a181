"""Deep Q-learning, to be read from top to bottom.

Mnih et al. (2015) with what Hessel et al. (2018) found to help: double Q-learning (van Hasselt et
al. 2016), dueling networks (Wang et al. 2016), returns of n steps (Sutton 1988) and prioritised
replay (Schaul et al. 2016), each of them a setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from rookery.errors import SpaceError
from rookery.learn.config import DQNConfig
from rookery.learn.descent import Descent, Target, to_host
from rookery.learn.replay_learner import Batch, ReplayLearner
from rookery.learn.schedule import scheduled
from rookery.learn.streams import stream_seed
from rookery.policy.epsilon_greedy import EpsilonGreedyPolicy
from rookery.policy.flat import FlatParameters
from rookery.policy.model import Model
from rookery.policy.module_network import network_of
from rookery.policy.networks import QNetwork
from rookery.policy.policy_module import PolicyModule


class DQN(ReplayLearner):
    """The learner. It writes the weights of ``policy.model``, and the policy's epsilon."""

    config: DQNConfig
    policy: EpsilonGreedyPolicy

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
                hidden_sizes_of(config, observation_space, encoder),
                config.activation,
                dueling=config.dueling,
                generator=generator,
            )

        module = PolicyModule(
            observation_space,
            action_space,
            encoder=encoder,
            network=network,
            build=None if network is not None else build,
            normalize_obs=config.normalize_obs,
            seed=stream_seed(seed, "weights"),
        )
        return greedy_policy(module, observation_space, config.initial_epsilon, seed)

    def __init__(
        self, policy: EpsilonGreedyPolicy, config: DQNConfig, num_envs: int, seed: int = 0
    ) -> None:
        exponent = config.priority_exponent if config.prioritized else None
        super().__init__(policy, config, num_envs, seed, priority_exponent=exponent)
        self._target = Target(self.parameters)
        self._optimizer = Descent(self.parameters, config.adam_epsilon, config.max_grad_norm)
        policy.epsilon = config.initial_epsilon

    def _step(self, progress: float) -> dict[str, Any]:
        config = self.config
        batch = self._batch(scheduled(config.priority_correction, 1.0, progress))
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        values = self._values(self.actor, batch.obs)
        error = values.gather(1, batch.action).squeeze(1) - self._targets(batch)
        loss = (batch.weight * huber(error)).mean()
        norm = self._optimizer.step(loss, learning_rate)
        error = error.detach()
        self._replay.set_errors(batch.place, to_host(error))
        if (self._gradient_steps + 1) % config.target_interval == 0:
            self._target.follow(config.target_rate)
        return {
            "value_loss": loss.detach(),
            "action_value": values.detach().mean(),
            "td_error": error.abs().mean(),
            "gradient_norm": norm,
        }

    @torch.no_grad()
    def _targets(self, batch: Batch) -> Tensor:
        """What the action values should be, float32 ``[N]``.

        ``r + discount * Q'(s', argmax_a Q'(s', a))``, Mnih et al. (2015), algorithm 1, with the
        target network's Q'; double Q-learning takes the argmax of the online network's Q, van
        Hasselt et al. (2016), equation 4. The argmax is over the actions that are legal.
        """
        values = self._values(self._target.module, batch.next_obs)
        chooser = self._values(self.actor, batch.next_obs) if self.config.double else values
        best = values.gather(1, best_action(chooser, batch.next_mask)).squeeze(1)
        return batch.reward + batch.discount * best

    def _values(self, module: Any, obs: Any) -> Tensor:
        values: Tensor = module.run(obs).outputs
        return values

    def _explore(self, progress: float) -> dict[str, float]:
        config = self.config
        self.policy.epsilon = epsilon_at(config, progress)
        rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        return {"epsilon": self.policy.epsilon, "learning_rate": rate}

    def _descents(self) -> Mapping[str, Descent]:
        return {"optimizer": self._optimizer}

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {"target": self._target.parameters}


def huber(error: Tensor, limit: float = 1.0) -> Tensor:
    """A squared error whose gradient is clipped: Huber (1964).

    ``e^2 / 2`` where ``|e| <= limit``, else ``limit * (|e| - limit / 2)``.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=limit)


def best_action(values: Tensor, mask: Tensor | None) -> Tensor:
    """Choose the legal action of the greatest value: int64 ``[N, 1]``.

    Args:
        values: float32 ``[N, A]``.
        mask: bool ``[N, A]``, the legal ones.
    """
    legal = values if mask is None else values.masked_fill(~mask, -torch.inf)
    return legal.argmax(1, keepdim=True)


def epsilon_at(config: Any, progress: float) -> float:
    """The share of random actions, which falls in the first part of the training."""
    explored = progress / max(config.exploration_fraction, 1e-9)
    return scheduled(config.initial_epsilon, config.final_epsilon, explored)


def count_actions(action_space: spaces.Space[Any]) -> int:
    """Count the actions to value.

    Raises:
        SpaceError: they are not finitely many.
    """
    if not isinstance(action_space, spaces.Discrete):
        kind = type(action_space).__name__
        raise SpaceError(f"action values need a Discrete action_space, not a {kind}")
    return int(action_space.n)


def greedy_policy(
    module: PolicyModule, observation_space: spaces.Space[Any], epsilon: float, seed: int
) -> EpsilonGreedyPolicy:
    """Make the policy that acts on the action values of ``module``."""
    model = Model(module, num_exploration=1)
    model.exploration[:] = epsilon
    rng = np.random.default_rng(stream_seed(seed, "actions"))
    network = network_of(model, observation_space)
    return EpsilonGreedyPolicy(module.layout, network, rng, model)
