"""Advantage actor-critic, to be read from top to bottom.

The synchronous form of Mnih et al. (2016), algorithm S3: all envs make ``num_steps`` steps, and
one gradient step follows on what they experienced. With ``gae_lambda=1`` the advantage is that
paper's: the n-step return, bootstrapped from the last value, minus the value.
"""

from __future__ import annotations

from typing import Any

from rookery.learn.base import Learner, actor_critic_policy, observe
from rookery.learn.config import A2CConfig
from rookery.learn.on_policy.ppo import (
    Batch,
    Scalars,
    advantage_batch,
    evaluate,
    explained_variance,
    standardized,
)
from rookery.learn.optimizers import RMSProp, gradient_step
from rookery.learn.parallel.peers import ALONE, Peers, any_of
from rookery.learn.placement import Placement, fused_gradient, loss_gradient
from rookery.learn.schedule import scheduled
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import RewardScaler, Rollout


class A2C(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Args:
        policy: as `make_policy` builds it.
        config: the settings.
        num_envs: of every rollout.
        seed: not needed; nothing is drawn.
        peers: learners that learn the same weights together.
        fused: whether ``rookery.learn.fast`` may compute the gradient of this class's own `loss`
            on the cpu, which is faster than torch and equal up to rounding.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        module: the policy's `PolicyModule` on the learner's device, for losses to read.
        config: the settings.
        entropy_coef: present value of the setting, which may follow a schedule.
    """

    log_steps = 1000

    make_policy = staticmethod(actor_critic_policy)

    def __init__(
        self,
        policy: Any,
        config: A2CConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
        fused: bool = True,
    ) -> None:
        self.model = policy.model
        self.config, self.peers = config, peers
        self._place: Placement[PolicyModule] = Placement(self.model, config.device, config.compile)
        self.module = self._place.module
        self._optimizer = RMSProp(self._place.flat.tensor, config.rms_decay, config.rms_epsilon)
        # The derived gradients standardise advantages over this learner's rows only.
        is_fused = fused and peers.size == 1
        self._fused = fused_gradient(policy, config, self._place) if is_fused else None
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            reward = rollout.reward
            if self._rewards:
                reward = self._rewards.scale(rollout, self.peers.gather)
            discounts = config.gamma, config.gae_lambda
            with self._place.learning():
                length = rollout.num_steps
                batch = advantage_batch(rollout, reward, self._place, *discounts, length).steps()
                metrics = self._step(batch, learning_rate)
            metrics["explained_variance"] = explained_variance(batch.value, batch.returns)
        observe(rollout, self.model, self.peers)
        return {**metrics, "learning_rate": learning_rate}

    def _step(self, batch: Batch, learning_rate: float) -> dict[str, float]:
        gradient, scalars = loss_gradient(self, batch, self._fused, self._place.flat)
        loss, norm = scalars.pop("loss"), self.config.max_grad_norm
        peers, rows = self.peers, len(batch.action)
        return gradient_step(
            self._optimizer, loss, gradient, learning_rate, norm, scalars, peers, rows
        )

    def loss(self, batch: Batch) -> Scalars:
        """Compute the loss, to be differentiated, and its parts: Mnih et al. (2016), section 4.

        This is the only definition of the objective. ``rookery.learn.fast`` has the gradient of
        this function derived by hand, and tests compare the two. A subclass's `loss` is
        differentiated by torch.

        Args:
            batch: all valid steps of a rollout, as `Batch.steps` returns them.

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

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])


# The function that `rookery.learn.fast` was derived from. Subclasses, patches and edited copies of
# this file have another one.
LIBRARY_LOSS = A2C.loss
