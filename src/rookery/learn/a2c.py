"""Advantage actor-critic, to be read from top to bottom.

The synchronous form of Mnih et al. (2016), algorithm S3: all envs make ``num_steps`` steps, and
one gradient step follows on what they experienced. With ``gae_lambda=1`` the advantage is that
paper's: the n-step return, bootstrapped from the last value, minus the value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.learn.base import Learner, actor_critic_policy
from rookery.learn.batch import Batch, advantage_batch, observe
from rookery.learn.config import A2CConfig
from rookery.learn.losses import explained_variance, policy_gradient_loss, standardize, value_loss
from rookery.learn.rmsprop import RMSProp
from rookery.learn.schedule import clip_norm, scheduled
from rookery.policy.network import network_for
from rookery.rollout import RewardScaler, Rollout


class A2C(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        config: the settings.
    """

    log_steps = 1000

    make_policy = staticmethod(actor_critic_policy)

    def __init__(self, policy: Any, config: A2CConfig, num_envs: int, seed: int = 0) -> None:
        self.model = policy.model
        self.config = config
        self._network = network_for(self.model, config.device, config.compile)
        self._optimizer = RMSProp(self._network.parameters, config.rms_decay, config.rms_epsilon)
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self._entropy_coef = scheduled(config.entropy_coef, None, progress)
        reward = self._rewards.scale(rollout) if self._rewards else rollout.reward
        batch = advantage_batch(rollout, reward, self.model, config.gamma, config.gae_lambda)
        with self._network.learning():
            metrics = self._step(batch, learning_rate) if len(batch) else {}
        observe(rollout, self.model)
        return {**metrics, "learning_rate": learning_rate}

    def _step(self, batch: Batch, learning_rate: float) -> dict[str, float]:
        """Take one gradient step on ``policy + value_coef * value - entropy_coef * entropy``."""
        config = self.config
        now = self._network.evaluate(batch.features, batch.action)
        advantage = batch.advantage
        if config.normalize_advantage:
            advantage = standardize(advantage)
        policy = policy_gradient_loss(now.log_prob, advantage)
        value = value_loss(now.value, batch.returns)
        d_entropy = np.full_like(now.entropy, -self._entropy_coef / len(batch))
        d_value = value.gradient * np.float32(config.value_coef)
        gradient = now.backward(policy.gradient, d_entropy, d_value)
        norm = clip_norm(gradient, config.max_grad_norm)
        self._optimizer.step(gradient, learning_rate)
        return {
            "policy_loss": policy.mean,
            "value_loss": value.mean,
            "entropy": float(now.entropy.mean()),
            "gradient_norm": norm,
            "explained_variance": explained_variance(batch.value, batch.returns),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])
