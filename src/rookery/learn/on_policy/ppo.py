"""Proximal policy optimisation (Schulman et al. 2017), to be read from top to bottom.

One `PPO.update` scales rewards, estimates advantages over all envs at once, makes minibatches of
the valid transitions, and takes a clipped gradient step on each minibatch, several times over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rookery.learn.base import observe
from rookery.learn.config import PPOConfig
from rookery.learn.on_policy.actor_critic import (
    AdvantageLearner,
    Scalars,
    explained_variance,
    standardized,
)
from rookery.learn.on_policy.batches import Minibatch, evaluate
from rookery.learn.optimizers import Adam
from rookery.learn.parallel.peers import ALONE, Peers, SharedPieces, any_of
from rookery.learn.schedule import means, scheduled
from rookery.policy.base import MINIBATCHES, seed_for
from rookery.rollout import Rollout


class PPO(AdvantageLearner):
    """The PPO learner, which writes the weights of ``policy.model`` in place.

    See `AdvantageLearner` for its arguments and attributes.

    Attributes:
        clip_range: Present value of the setting, which may follow a schedule.
    """

    config: PPOConfig
    clip_range: float

    def __init__(
        self,
        policy: Any,
        config: PPOConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
        fused: bool = True,
    ) -> None:
        super().__init__(policy, config, num_envs, seed, peers, fused)
        self._rng = np.random.default_rng(seed_for(seed, MINIBATCHES))

    def _make_optimizer(self, parameters: Tensor) -> Adam:
        return Adam(parameters)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.clip_range = scheduled(config.clip_range, config.final_clip_range, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            with self._place.learning():
                batch = self._batch(rollout, config.sequence_length)
                metrics = self._epochs(batch, rollout.valid, learning_rate)
        # Last, because all epochs need the observation statistics that this rollout was acted with.
        observe(rollout, self.model, self.peers)
        return {**metrics, "learning_rate": learning_rate, "clip_range": self.clip_range}

    def _epochs(self, batch: Minibatch, valid: Any, learning_rate: float) -> dict[str, float]:
        """Pass over the batch up to ``num_epochs`` times; return mean metrics of minibatches."""
        config = self.config
        steps: list[dict[str, float]] = []
        for epoch, part in self._minibatches(batch, valid):  # noqa: B007
            steps.append(self._step(part, learning_rate))
            limit = config.target_kl
            if limit is not None and steps[-1]["approximate_kl"] > limit:
                break
        metrics = means(steps)
        metrics["skipped_gradient_steps"] *= len(steps)
        whole = batch.steps()
        variance = explained_variance(whole.value, whole.returns)
        return {**metrics, "explained_variance": variance, "epochs": float(epoch)}

    def _minibatches(self, batch: Minibatch, valid: Any) -> Iterator[tuple[int, Minibatch]]:
        """Shuffle in every epoch, and cut into minibatches that differ by at most one piece.

        Several learners cut the pieces of all of them in the same way, and each takes its part.

        Args:
            batch: The pieces with valid steps.
            valid: bool ``[T, B]``, True for the steps to learn from.
        """
        size = max(self.config.minibatch_size // batch.length, 1)
        kept = valid.reshape(-1, batch.length, valid.shape[1]).any(axis=1)
        pieces = SharedPieces(self.peers, kept)
        count = math.ceil(pieces.count / size)
        for epoch in range(1, self.config.num_epochs + 1):
            if count == 1:
                yield epoch, batch.steps()
                continue
            for index in np.array_split(self._rng.permutation(pieces.count), count):
                yield epoch, batch.take(pieces.own(index)).steps()

    def loss(self, batch: Minibatch) -> Scalars:
        """Compute the loss of a minibatch, to be differentiated, and its parts.

        Schulman et al. (2017), equation 9: ``L = E[L_clip - c1 L_vf + c2 S]``, negated, with the
        clipped surrogate of equation 7.

        This is the definition of the objective: edit or override it to change PPO.
        ``rookery.learn.fast`` has the gradient of exactly this code, derived by hand. Torch
        differentiates every other `loss`, that of a subclass as well as this one after an edit.

        Args:
            batch: A minibatch, as `Minibatch.steps` returns it.

        Returns:
            The scalar tensor ``loss``, and numbers to report as metrics, by name.
        """
        config, eps = self.config, self.clip_range
        now = evaluate(self._place, batch)
        log_ratio = now.log_prob - batch.log_prob
        ratio = torch.exp(log_ratio)
        advantage = batch.advantage
        if config.normalize_advantage:
            advantage = standardized(advantage, self.peers)
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - eps, 1 + eps) * advantage)
        error = (now.value - batch.returns).square()
        if config.value_clip_range is not None:  # as OpenAI Baselines' PPO2 does
            limit = config.value_clip_range
            near = batch.value + (now.value - batch.value).clamp(-limit, limit)
            error = torch.maximum(error, (near - batch.returns).square())
        policy, value, entropy = -surrogate.mean(), error.mean(), now.entropy.mean()
        return {
            "loss": policy + config.value_coef * value - self.entropy_coef * entropy,
            "policy_loss": policy,
            "value_loss": value,
            "entropy": entropy,
            "approximate_kl": (ratio - log_ratio).mean() - 1.0,  # Schulman (2020), estimator k3
            "clip_fraction": ((ratio - 1.0).abs() > eps).float().mean(),
        }

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._rng.bit_generator.state = state["rng"]


# `rookery.learn.fast` has the gradient of this function, derived by hand. After an edit of the
# function, torch differentiates it, and a warning says so.
LIBRARY_LOSS = PPO.loss
