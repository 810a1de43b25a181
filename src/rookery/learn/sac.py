"""Soft actor-critic, to be read from top to bottom.

Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications": two critics, a squashed
Gaussian actor, and an entropy coefficient that is learned along with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor, nn

from rookery.learn.config import SACConfig
from rookery.learn.continuous import actor_policy, critics_for
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.replay_learner import Batch, ReplayLearner
from rookery.learn.schedule import scheduled
from rookery.learn.target import Target
from rookery.policy.distributions import SquashedGaussian
from rookery.policy.flat import FlatParameters
from rookery.policy.squashed import SquashedGaussianPolicy
from rookery.rollout.tree import Tree

_NO_LIMIT = float("inf")


class EntropyCoefficient(nn.Module):
    """Alpha, the weight of the entropy, as a parameter that stays positive."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def forward(self) -> Tensor:
        return self.log_alpha.exp()[0]


class SAC(ReplayLearner):
    """The learner. It writes the weights of ``policy.model``."""

    policy: SquashedGaussianPolicy
    config: SACConfig

    @staticmethod
    def make_policy(
        config: SACConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
        encoder: Any = None,
        network: Any = None,
    ) -> SquashedGaussianPolicy:
        inner = actor_policy(config, observation_space, action_space, seed, encoder, network)
        policy = SquashedGaussianPolicy(inner)
        policy.is_uniform = config.warmup_steps > 0
        return policy

    def __init__(
        self, policy: SquashedGaussianPolicy, config: SACConfig, num_envs: int, seed: int = 0
    ) -> None:
        super().__init__(policy, config, num_envs, seed, with_path=True)
        device, epsilon = self.placement.device, config.adam_epsilon
        self._critics = critics_for(policy, self.actor, config, seed).to(device)
        self._critic_flat = FlatParameters(self._critics)
        self._target = Target(self._critics, self._critic_flat)
        self._coefficient = EntropyCoefficient().to(device)
        self._alpha_flat = FlatParameters(self._coefficient)
        self._actor_optimizer = Adam(self.placement.flat.tensor, epsilon=epsilon)
        self._critic_optimizer = Adam(self._critic_flat.tensor, epsilon=epsilon)
        self._alpha_optimizer = Adam(self._alpha_flat.tensor, epsilon=epsilon)
        wanted = config.target_entropy
        self._target_entropy = -float(policy.layout.num_columns) if wanted is None else wanted

    @property
    def alpha(self) -> float:
        """The entropy coefficient."""
        return float(self._alpha())

    def _alpha(self) -> Tensor:
        if self.config.entropy_coef is not None:
            return torch.tensor(self.config.entropy_coef, device=self.placement.device)
        alpha: Tensor = self._coefficient().detach()
        return alpha

    def _step(self, progress: float) -> dict[str, float]:
        """Take one gradient step on the critics, the actor and the entropy coefficient."""
        rate = scheduled(self.config.learning_rate, None, progress)
        batch, alpha = self._sample(), self._alpha()

        value_loss, values = self._critic_loss(batch, self._targets(batch, alpha))
        gradient = self._critic_flat.gradient(value_loss)
        told = {"value_loss": value_loss, "action_value": values.mean()}
        critic = gradient_step(self._critic_optimizer, value_loss, gradient, rate, _NO_LIMIT, told)

        policy_loss, log_prob = self._actor_loss(batch, alpha)
        gradient = self.placement.flat.gradient(policy_loss)
        told = {
            "policy_loss": policy_loss,
            "entropy": -log_prob.mean(),
            "entropy_coef": alpha,
        }
        actor = gradient_step(self._actor_optimizer, policy_loss, gradient, rate, _NO_LIMIT, told)

        skipped = critic["skipped_gradient_steps"] + actor["skipped_gradient_steps"]
        if self.config.entropy_coef is None and not skipped:
            alpha_loss = self._alpha_loss(log_prob)
            gradient = self._alpha_flat.gradient(alpha_loss)
            gradient_step(self._alpha_optimizer, alpha_loss, gradient, rate, _NO_LIMIT)

        self._target.follow(self.config.target_rate)
        self._gradient_steps += not skipped
        metrics = {**actor, **critic, "skipped_gradient_steps": skipped}
        del metrics["loss"]
        return metrics

    def _critic_loss(self, batch: Batch, target: Tensor) -> tuple[Tensor, Tensor]:
        """Equation 5: both critics regress on the soft value of what followed.

        Returns:
            The loss, summed over the critics, and their values ``[2, N]``.
        """
        values = self._critics(batch.obs, batch.action)
        return 0.5 * (values - target).square().mean(1).sum(), values

    @torch.no_grad()
    def _targets(self, batch: Batch, alpha: Tensor) -> Tensor:
        """``r + discount * (min_k Q'_k(s', a') - alpha log pi(a' | s'))`` with a' drawn now.

        Equations 3 and 5; the lesser of two target critics, section 5. A return of several steps
        has the entropies of the states between in it too, each by an action drawn there now.
        """
        action, log_prob = self._draw(batch.next_obs)
        soft_value = self._target.module(batch.next_obs, action).amin(0) - alpha * log_prob
        target: Tensor = batch.reward + batch.discount * soft_value
        if batch.path_obs is not None and batch.path_discount is not None:
            _, log_probs = self._draw(batch.path_obs)
            entropy = -log_probs.view_as(batch.path_discount)
            target += alpha * (batch.path_discount * entropy).sum(0)
        return target

    def _actor_loss(self, batch: Batch, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Equations 7 and 9: ``mean(alpha log pi(a | s) - min_k Q_k(s, a))``, a drawn now.

        Returns:
            The loss, and ``log pi(a | s)``, detached, ``[N]``.
        """
        action, log_prob = self._draw(batch.obs)
        loss = (alpha * log_prob - self._critics(batch.obs, action).amin(0)).mean()
        return loss, log_prob.detach()

    def _alpha_loss(self, log_prob: Tensor) -> Tensor:
        """Equation 18: ``mean(-alpha (log pi + target entropy))``."""
        loss: Tensor = -(self._coefficient() * (log_prob + self._target_entropy)).mean()
        return loss

    def _draw(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Draw actions, through which gradients flow, and their log probabilities."""
        return SquashedGaussian(self.actor.run(obs).outputs).rsample(self._noise)

    def _explore(self, progress: float) -> None:
        self.policy.is_uniform = not self._gradient_steps and self._budget.is_warming_up

    def _settings(self, progress: float) -> dict[str, float]:
        return {"learning_rate": scheduled(self.config.learning_rate, None, progress)}

    def _optimizers(self) -> Mapping[str, Adam]:
        return {
            "actor_optimizer": self._actor_optimizer,
            "critic_optimizer": self._critic_optimizer,
            "alpha_optimizer": self._alpha_optimizer,
        }

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {
            "critics": self._critic_flat,
            "targets": self._target.flat,
            "log_alpha": self._alpha_flat,
        }
