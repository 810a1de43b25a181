"""Twin delayed deep deterministic policy gradients, to be read from top to bottom.

Fujimoto et al. (2018), "Addressing Function Approximation Error in Actor-Critic Methods": targets
use the smaller value of two critics and noisy actions, and the actor is trained less often than the
critics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rookery.common.trees import Tree
from rookery.learn.config import TD3Config
from rookery.learn.off_policy.continuous import TwinCriticLearner
from rookery.learn.off_policy.replay_learner import ReplayBatch, Target
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.exploring import NoisyPolicy, OrnsteinUhlenbeckPolicy
from rookery.policy.model import FlatParameters
from rookery.policy.network_policy import NetworkPolicy


class TD3(TwinCriticLearner):
    """The TD3 learner, which writes the weights of ``policy.model``.

    The actor has the outputs of SAC's actor. The first half, squashed, is the action; the second
    half is unused.
    """

    policy: NoisyPolicy
    config: TD3Config

    @staticmethod
    def _exploring(config: TD3Config, inner: NetworkPolicy) -> NoisyPolicy:
        is_correlated = config.exploration_noise_kind == "ornstein-uhlenbeck"
        policy = OrnsteinUhlenbeckPolicy(inner) if is_correlated else NoisyPolicy(inner)
        policy.noise = config.exploration_noise
        return policy

    def __init__(
        self,
        policy: NoisyPolicy,
        config: TD3Config,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
    ) -> None:
        super().__init__(policy, config, num_envs, seed, peers)
        self._target_actor = Target(self.actor, self.placement.flat)
        self._policy_loss = 0.0  # the latest

    def _begin(self) -> None:
        self._target_actor.follow(1.0)

    def _step(self, progress: float) -> dict[str, float]:
        """Take a gradient step on the critics, and on the actor every ``policy_delay`` steps."""
        rate = self._learning_rate(progress)
        batch = self._sample()

        value_loss, values = self.critic_loss(batch)
        metrics = self._improve_critics(value_loss, values, rate)
        del metrics["loss"]

        if not metrics["skipped_gradient_steps"]:
            self._gradient_steps += 1
            if self._gradient_steps % self.config.policy_delay == 0:
                actor = self._improve_actor(self.actor_loss(batch), len(batch.reward), rate)
                for target in (self._target_critics, self._target_actor):
                    target.follow(self.config.target_rate)
                self._policy_loss = actor["loss"]
                metrics["skipped_gradient_steps"] += actor["skipped_gradient_steps"]
        return {**metrics, "policy_loss": self._policy_loss}

    # The two losses below are the only definition of the objective.

    def critic_loss(self, batch: ReplayBatch) -> tuple[Tensor, Tensor]:
        """Compute the critics' squared errors, algorithm 1.

        Returns:
            The loss, summed over the critics, and their values ``[2, N]``.
        """
        values = self._critics(batch.obs, batch.action)
        return (values - self._targets(batch)).square().mean(1).sum(), values

    def actor_loss(self, batch: ReplayBatch) -> Tensor:
        """Compute ``-mean(Q_1(s, mu(s)))``, with the first critic."""
        loss: Tensor = -self._critics(batch.obs, _action(self.actor, batch.obs))[0].mean()
        return loss

    @torch.no_grad()
    def _targets(self, batch: ReplayBatch) -> Tensor:
        """Compute ``r + discount * min_k Q'_k(s', a')``: equation 10, and for a' equation 14.

        ``a' = clip(mu'(s') + clip(noise, -c, c), -1, 1)``.
        """
        action = _action(self._target_actor.module, batch.next_obs)
        noise = torch.randn(action.shape, generator=self._noise, device=action.device)
        limit = self.config.target_noise_clip
        noise = (noise * self.config.target_noise).clamp(-limit, limit)
        action = (action + noise).clamp(-1.0, 1.0)
        values = self._target_critics.module(batch.next_obs, action)
        target: Tensor = batch.reward + batch.discount * values.amin(0)
        return target

    def _explore(self, progress: float) -> None:
        super()._explore(progress)
        self.policy.noise = self.config.exploration_noise

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "policy_loss": self._policy_loss}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._policy_loss = float(state["policy_loss"])

    def _apart(self) -> Mapping[str, FlatParameters]:
        return {
            "critics": self._critic_flat,
            "target_critics": self._target_critics.flat,
            "target_actor": self._target_actor.flat,
        }


def _action(module: Any, obs: Tree) -> Tensor:
    """Return ``mu(s)``, float32 ``[N, A]``, between -1 and 1."""
    outputs: Tensor = module.run(obs).outputs
    return torch.tanh(outputs[:, : outputs.shape[1] // 2])
