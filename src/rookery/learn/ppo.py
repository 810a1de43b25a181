"""Proximal policy optimisation (Schulman et al. 2017), to be read from top to bottom.

One `PPO.update`: scale rewards, estimate advantages over all envs at once, make minibatches of the
valid transitions, and take a clipped gradient step on each of them, several times over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.errors import MissingExtra
from rookery.learn.adam import Adam
from rookery.learn.base import Learner, actor_critic_policy
from rookery.learn.batch import Batch, advantage_batch, observe
from rookery.learn.config import PPOConfig
from rookery.learn.feed import fed
from rookery.learn.losses import (
    approximate_kl,
    clipped_surrogate_loss,
    clipped_value_loss,
    explained_variance,
    standardize,
    value_loss,
)
from rookery.learn.schedule import clip_norm, means, scheduled
from rookery.learn.sequences import SequenceBatch, sequence_batch
from rookery.policy.network import network_for
from rookery.policy.old_model import ActorCriticModel
from rookery.rollout import RewardScaler, Rollout

__all__ = ["PPO", "Batch", "PPOConfig"]


class PPO(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        config: the settings.
        num_updates: how many rollouts were learned from.
    """

    @staticmethod
    def make_policy(
        config: PPOConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> Any:
        memory_size = config.memory_size if config.recurrent == "gru" else 0
        return actor_critic_policy(config, observation_space, action_space, seed, memory_size)

    def __init__(self, policy: Any, config: PPOConfig, num_envs: int, seed: int = 0) -> None:
        self.model = policy.model
        self.config = config
        self.num_updates = 0
        self._network = _network(self.model, config)
        self._optimizer = Adam(self._network.parameters)
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None
        self._rng = np.random.default_rng(seed)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self._entropy_coef = scheduled(config.entropy_coef, None, progress)
        clip_range = scheduled(config.clip_range, config.final_clip_range, progress)
        with self._network.learning():
            batch = self._batch(rollout)
            metrics = self._epochs(batch, learning_rate, clip_range) if len(batch) else {}
        # Only now: the statistics that this rollout was acted under hold through its epochs.
        observe(rollout, self.model)
        self.num_updates += 1
        return {**metrics, "learning_rate": learning_rate, "clip_range": clip_range}

    def _batch(self, rollout: Rollout) -> Batch | SequenceBatch:
        reward = self._rewards.scale(rollout) if self._rewards else rollout.reward
        config, model = self.config, self.model
        discounts = config.gamma, config.gae_lambda
        if config.recurrent == "none":
            return advantage_batch(rollout, reward, model, *discounts)
        length = config.sequence_length
        return sequence_batch(rollout, reward, model, self._network, *discounts, length)

    def _epochs(
        self, batch: Batch | SequenceBatch, learning_rate: float, clip_range: float
    ) -> dict[str, float]:
        """Pass over the batch up to ``num_epochs`` times; return the minibatches' mean metrics."""
        config = self.config
        steps: list[dict[str, float]] = []
        for epochs in range(1, config.num_epochs + 1):  # noqa: B007
            minibatches = fed(self._minibatches(batch), self._network)
            latest = [self._step(part, learning_rate, clip_range) for part in minibatches]
            steps += latest
            kl = means(latest)["approximate_kl"]
            if config.target_kl is not None and kl > config.target_kl:
                break
        whole = batch.whole()
        variance = explained_variance(whole.value, whole.returns)
        return {**means(steps), "explained_variance": variance, "epochs": float(epochs)}

    def _minibatches(self, batch: Batch | SequenceBatch) -> Iterator[Batch]:
        """Shuffle and cut. One minibatch that is the whole batch needs neither."""
        size = max(self.config.minibatch_size // batch.rows_per_item, 1)
        if size >= len(batch):
            yield batch.whole()
            return
        order = self._rng.permutation(len(batch))
        for start in range(0, len(batch), size):
            yield batch.take(order[start : start + size])

    def _step(self, batch: Batch, learning_rate: float, clip_range: float) -> dict[str, float]:
        """Take one gradient step on ``policy + value_coef * value - entropy_coef * entropy``."""
        config = self.config
        now = self._network.evaluate(batch.features, batch.action)
        log_ratio = now.log_prob - batch.log_prob
        ratio = np.exp(log_ratio)
        advantage = batch.advantage
        if config.normalize_advantage:
            advantage = standardize(advantage)
        policy = clipped_surrogate_loss(ratio, advantage, clip_range)
        if config.value_clip_range is None:
            value = value_loss(now.value, batch.returns)
        else:
            limit = config.value_clip_range
            value = clipped_value_loss(now.value, batch.value, batch.returns, limit)
        d_entropy = np.full_like(now.entropy, -self._entropy_coef / len(batch))
        d_value = value.gradient * np.float32(config.value_coef)
        gradient = now.backward(policy.gradient, d_entropy, d_value)
        norm = clip_norm(gradient, config.max_grad_norm)
        self._optimizer.step(gradient, learning_rate)
        return {
            "policy_loss": policy.mean,
            "value_loss": value.mean,
            "entropy": float(now.entropy.mean()),
            "approximate_kl": approximate_kl(log_ratio, ratio),
            "clip_fraction": float((np.abs(ratio - 1.0) > clip_range).mean()),
            "gradient_norm": norm,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
            "rng": self._rng.bit_generator.state,
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])
        self._rng.bit_generator.state = state["rng"]
        self.num_updates = int(state["num_updates"])


def _network(model: ActorCriticModel, config: PPOConfig) -> Any:
    """Build the learner's view of ``model``; recurrent ones need torch."""
    if not model.spec.memory_size:
        return network_for(model, config.device, config.compile)
    try:
        from rookery.policy.recurrent_network import RecurrentNetwork
    except ImportError as error:
        raise MissingExtra(
            "recurrent policies learn in torch: pip install 'rookery[train]'"
        ) from error
    return RecurrentNetwork(model, config.device)
