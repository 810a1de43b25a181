"""Proximal policy optimisation (Schulman et al. 2017), to be read from top to bottom.

One `PPO.update`: scale rewards, estimate advantages over all envs at once, make minibatches of the
valid transitions, and take a clipped gradient step on each of them, several times over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.learn.adam import Adam
from rookery.learn.config import PPOConfig
from rookery.learn.losses import (
    approximate_kl,
    clipped_surrogate_loss,
    clipped_value_loss,
    explained_variance,
    standardize,
    value_loss,
)
from rookery.policy.encoder import Features
from rookery.policy.model import ActorCriticModel
from rookery.policy.network import network_for
from rookery.rollout import RewardScaler, Rollout, gae
from rookery.rollout.tree import merge_axes, take

__all__ = ["PPO", "Batch", "PPOConfig"]

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """N transitions.

    Attributes:
        features: encoded observations.
        action: ``[N, K]``, encoded by the action head.
        log_prob: float32 ``[N]``, when the action was drawn.
        value: float32 ``[N]``, when the action was drawn.
        advantage: float32 ``[N]``.
        returns: float32 ``[N]``, what the value should be.
    """

    features: Features
    action: npt.NDArray[Any]
    log_prob: Floats
    value: Floats
    advantage: Floats
    returns: Floats

    def __len__(self) -> int:
        return len(self.log_prob)

    def take(self, index: npt.NDArray[np.int64]) -> Batch:
        """Return the transitions ``index``, int64 ``[M]``."""
        vector, images = self.features
        features = Features(vector[index], tuple(image[index] for image in images))
        columns = (self.action, self.log_prob, self.value, self.advantage, self.returns)
        return Batch(features, *(column[index] for column in columns))


class PPO:
    """The learner. It writes the weights of ``model`` in place.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        config: the settings.
        num_updates: how many rollouts were learned from.
    """

    def __init__(
        self, model: ActorCriticModel, config: PPOConfig, num_envs: int, seed: int = 0
    ) -> None:
        self.model = model
        self.config = config
        self.num_updates = 0
        self._network = network_for(model)
        self._optimizer = Adam(model.parameters)
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None
        self._rng = np.random.default_rng(seed)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        """Learn from one rollout.

        Args:
            rollout: collected under the present weights.
            progress: how much of the training is done, from 0 to 1; moves the schedules.

        Returns:
            Metrics by name; docs/metrics.md explains them.
        """
        config = self.config
        learning_rate = _schedule(config.learning_rate, config.final_learning_rate, progress)
        clip_range = _schedule(config.clip_range, config.final_clip_range, progress)
        batch = self._batch(rollout)
        metrics = self._epochs(batch, learning_rate, clip_range) if len(batch) else {}
        # Only now: the statistics that this rollout was acted under hold through its epochs.
        self.model.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()))
        self.num_updates += 1
        return {**metrics, "learning_rate": learning_rate, "clip_range": clip_range}

    def _batch(self, rollout: Rollout) -> Batch:
        """Estimate advantages, leave invalid rows out, and make one flat batch of the rest."""
        reward = self._rewards.scale(rollout) if self._rewards else rollout.reward
        advantage, returns = gae(
            reward,
            rollout.value,
            rollout.last_value,
            rollout.terminated,
            rollout.truncated,
            rollout.final_value,
            gamma=self.config.gamma,
            gae_lambda=self.config.gae_lambda,
            valid=rollout.valid,
        )
        obs, action = merge_axes(rollout.obs), merge_axes(rollout.action)
        columns = [rollout.log_prob, rollout.value, advantage, returns]
        columns = [column.reshape(-1) for column in columns]
        if not rollout.valid.all():
            rows = np.flatnonzero(rollout.valid)
            obs, action = take(obs, rows), action[rows]
            columns = [column[rows] for column in columns]
        return Batch(self.model.encode(obs), self.model.head.encode(action), *columns)

    def _epochs(self, batch: Batch, learning_rate: float, clip_range: float) -> dict[str, float]:
        """Pass over the batch up to ``num_epochs`` times; return the minibatches' mean metrics."""
        config = self.config
        steps: list[dict[str, float]] = []
        for epochs in range(1, config.num_epochs + 1):  # noqa: B007
            minibatches = self._minibatches(batch)
            latest = [self._step(part, learning_rate, clip_range) for part in minibatches]
            steps += latest
            kl = _mean(latest, "approximate_kl")
            if config.target_kl is not None and kl > config.target_kl:
                break
        means = {name: _mean(steps, name) for name in steps[0]}
        variance = explained_variance(batch.value, batch.returns)
        return {**means, "explained_variance": variance, "epochs": float(epochs)}

    def _minibatches(self, batch: Batch) -> Iterator[Batch]:
        """Shuffle and cut. One minibatch that is the whole batch needs neither."""
        size = self.config.minibatch_size
        if size >= len(batch):
            yield batch
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
        d_entropy = np.full_like(now.entropy, -config.entropy_coef / len(batch))
        d_value = value.gradient * np.float32(config.value_coef)
        gradient = now.backward(policy.gradient, d_entropy, d_value)
        norm = _clip(gradient, config.max_grad_norm)
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
        """Everything but the model that is needed to go on, as plain data."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
            "rng": self._rng.bit_generator.state,
            "num_updates": self.num_updates,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])
        self._rng.bit_generator.state = state["rng"]
        self.num_updates = int(state["num_updates"])


def _schedule(start: float, final: float | None, progress: float) -> float:
    """Go linearly from ``start`` to ``final``, or stay where there is none."""
    return start if final is None else start + (final - start) * min(max(progress, 0.0), 1.0)


def _clip(gradient: Floats, max_norm: float) -> float:
    """Scale ``gradient`` in place so that it is no longer than ``max_norm``; return its length."""
    norm = math.sqrt(gradient @ gradient)
    if norm > max_norm:
        gradient *= np.float32(max_norm / norm)
    return norm


def _mean(rows: list[dict[str, float]], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)
