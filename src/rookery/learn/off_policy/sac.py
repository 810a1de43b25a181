"""Soft actor-critic, to be read from top to bottom.

Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications": two critics, a squashed
Gaussian actor, and a learned entropy coefficient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rookery.common.trees import Tree
from rookery.learn.config import SACConfig
from rookery.learn.off_policy.continuous import TwinCriticLearner
from rookery.learn.off_policy.replay_learner import ReplayBatch
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.exploring import SquashedGaussianPolicy
from rookery.policy.model import FlatParameters
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.torch.distributions import SquashedGaussian


class EntropyCoefficient(nn.Module):
    """Alpha, the weight of the entropy, as a parameter that stays positive."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(1))

    def forward(self) -> Tensor:
        return self.log_alpha.exp()[0]


class SAC(TwinCriticLearner):
    """The SAC learner, which writes the weights of ``policy.model``."""

    policy: SquashedGaussianPolicy
    config: SACConfig

    @staticmethod
    def _exploring(config: SACConfig, inner: NetworkPolicy) -> SquashedGaussianPolicy:
        return SquashedGaussianPolicy(inner)

    def __init__(
        self,
        policy: SquashedGaussianPolicy,
        config: SACConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
    ) -> None:
        super().__init__(policy, config, num_envs, seed, peers, with_path=True)
        self._coefficient = EntropyCoefficient().to(self.placement.device)
        self._alpha_flat = FlatParameters(self._coefficient)
        self._alpha_optimizer = Adam(self._alpha_flat.tensor, epsilon=config.adam_epsilon)
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
        rate = self._learning_rate(progress)
        batch, alpha = self._sample(), self._alpha()

        value_loss, values = self.critic_loss(batch)
        critic = self._improve_critics(value_loss, values, rate)

        policy_loss, log_prob = self.actor_loss(batch)
        scalars = {
            "policy_loss": policy_loss,
            "entropy": -log_prob.mean(),
            "entropy_coef": alpha,
        }
        actor = self._improve_actor(policy_loss, len(log_prob), rate, scalars)

        skipped = critic["skipped_gradient_steps"] + actor["skipped_gradient_steps"]
        if self.config.entropy_coef is None and not skipped:
            alpha_loss = self.alpha_loss(log_prob)
            gradient = self._alpha_flat.gradient(alpha_loss)
            gradient_step(
                self._alpha_optimizer, alpha_loss, gradient, rate, math.inf,
                peers=self.peers, num_rows=len(log_prob),
            )  # fmt: skip

        self._target_critics.follow(self.config.target_rate)
        self._gradient_steps += not skipped
        metrics = {**actor, **critic, "skipped_gradient_steps": skipped}
        del metrics["loss"]
        return metrics

    # The three losses below are the only definition of the objective.

    def critic_loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Compute equation 5: both critics regress on the soft value of the next state.

        Returns:
            The loss, summed over the critics, and their values ``[2, N]``.
        """
        target = self._targets(batch, self._alpha())
        values = self._critics(batch.obs, batch.action)
        return 0.5 * (values - target).square().mean(1).sum(), values

    @torch.no_grad()
    def _targets(self, batch: ReplayBatch, alpha: Tensor) -> Tensor:
        """Compute ``r + discount * (min_k Q'_k(s', a') - alpha log pi(a' | s'))`` for a new a'.

        Equations 3 and 5, with the smaller of two target critics, section 5. An n-step return also
        contains the entropies of the states in between, estimated with newly drawn actions.
        """
        action, log_prob = self._draw(batch.next_obs)
        soft_value = self._target_critics.module(batch.next_obs, action).amin(0) - alpha * log_prob
        target: Tensor = batch.reward + batch.discount * soft_value
        if batch.path_obs is not None and batch.path_discount is not None:
            _, log_probs = self._draw(batch.path_obs)
            entropy = -log_probs.view_as(batch.path_discount)
            target += alpha * (batch.path_discount * entropy).sum(0)
        return target

    def actor_loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Compute ``mean(alpha log pi(a | s) - min_k Q_k(s, a))``, equations 7 and 9.

        The action a is drawn from the present policy.

        Returns:
            The loss, and ``log pi(a | s)``, detached, ``[N]``.
        """
        action, log_prob = self._draw(batch.obs)
        loss = (self._alpha() * log_prob - self._critics(batch.obs, action).amin(0)).mean()
        return loss, log_prob.detach()

    def alpha_loss(self, log_prob: Tensor) -> Tensor:
        """Compute equation 18: ``mean(-alpha (log pi + target entropy))``."""
        loss: Tensor = -(self._coefficient() * (log_prob + self._target_entropy)).mean()
        return loss

    def _draw(self, obs: Tree) -> tuple[Tensor, Tensor]:
        """Draw differentiable actions and their log probabilities."""
        drawn = self.actor.distribution(self.actor.run(obs).outputs)
        assert isinstance(drawn, SquashedGaussian)
        return drawn.rsample(self._noise)

    def _optimizers(self) -> Mapping[str, Adam]:
        return {**super()._optimizers(), "alpha_optimizer": self._alpha_optimizer}

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {
            "critics": self._critic_flat,
            "targets": self._target_critics.flat,
            "log_alpha": self._alpha_flat,
        }
