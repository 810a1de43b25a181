"""Advantage actor-critic, to be read from top to bottom.

This is the synchronous form of Mnih et al. (2016), algorithm S3: all envs make ``num_steps`` steps,
then the learner takes one gradient step on these. With ``gae_lambda=1`` the advantage is that of
the paper: the n-step return, bootstrapped from the last value, minus the value.
"""

from __future__ import annotations

from torch import Tensor

from rookery.learn.base import observe
from rookery.learn.config import A2CConfig
from rookery.learn.on_policy.actor_critic import (
    AdvantageLearner,
    Scalars,
    explained_variance,
    standardized,
)
from rookery.learn.on_policy.batches import Minibatch, evaluate
from rookery.learn.optimizers import RMSProp
from rookery.learn.parallel.peers import any_of
from rookery.learn.schedule import scheduled
from rookery.rollout import Rollout


class A2C(AdvantageLearner):
    """The A2C learner, which writes the weights of ``policy.model`` in place.

    See `AdvantageLearner` for its arguments and attributes.
    """

    log_steps = 1000

    config: A2CConfig

    def _make_optimizer(self, parameters: Tensor) -> RMSProp:
        return RMSProp(parameters, self.config.rms_decay, self.config.rms_epsilon)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            with self._place.learning():
                batch = self._batch(rollout, rollout.num_steps).steps()
                metrics = self._step(batch, learning_rate)
            metrics["explained_variance"] = explained_variance(batch.value, batch.returns)
        observe(rollout, self.model, self.peers)
        return {**metrics, "learning_rate": learning_rate}

    def loss(self, batch: Minibatch) -> Scalars:
        """Compute the loss, to be differentiated, and its parts: Mnih et al. (2016), section 4.

        This is the only definition of the objective. ``rookery.learn.fast`` has the gradient of
        this function derived by hand, and tests compare the two. A subclass's `loss` is
        differentiated by torch.

        Args:
            batch: All valid steps of a rollout, as `Minibatch.steps` returns them.

        Returns:
            The scalar tensor ``loss``, and numbers to report as metrics, by name.
        """
        config = self.config
        now = evaluate(self._place, batch)
        advantage = batch.advantage
        if config.normalize_advantage:
            advantage = standardized(advantage, self.peers)
        policy = -(now.log_prob * advantage).mean()
        value, entropy = (now.value - batch.returns).square().mean(), now.entropy.mean()
        return {
            "loss": policy + config.value_coef * value - self.entropy_coef * entropy,
            "policy_loss": policy,
            "value_loss": value,
            "entropy": entropy,
        }


# `rookery.learn.fast` has the gradient of this function, derived by hand. After an edit of the
# function, torch differentiates it, and a warning says so.
LIBRARY_LOSS = A2C.loss
