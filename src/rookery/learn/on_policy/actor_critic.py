"""The common part of PPO and A2C, and the policy of all algorithms with an actor and a critic."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
from torch import Tensor

from rookery.learn.base import Learner
from rookery.learn.config import AdvantageConfig
from rookery.learn.config_base import noise_settings
from rookery.learn.on_policy.batches import Minibatch, advantage_batch
from rookery.learn.optimizers import Adam, RMSProp, gradient_step
from rookery.learn.parallel.peers import ALONE, Moments, Peers, together
from rookery.learn.placement import Placement, fused_gradient, loss_gradient
from rookery.policy import make_policy
from rookery.policy.base import Policy
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import RewardScaler, Rollout

Scalars: TypeAlias = dict[str, Any]


def actor_critic_policy(
    config: Any,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    seed: int,
    encoder: Any = None,
    network: Any = None,
) -> Policy:
    """Build the policy of an algorithm with actor and critic; see ``Learner.make_policy``."""
    return make_policy(
        observation_space,
        action_space,
        encoder=encoder,
        network=network,
        image=config.image_encoder,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        normalize_obs=config.normalize_obs,
        orthogonal_init=getattr(config, "orthogonal_init", True),
        **noise_settings(config),
        core=config.recurrent,
        core_size=config.memory_size,
        seed=seed,
    )


class AdvantageLearner(Learner):
    """A learner with generalised advantage estimation, one network and one optimizer.

    Args:
        policy: The policy to train, as `make_policy` builds it.
        config: The settings.
        num_envs: Number of envs of every rollout.
        seed: Seed of the order of minibatches; A2C does not use it.
        peers: Learners that train the same weights together.
        fused: True if ``rookery.learn.fast`` may compute the gradient of the library's `loss` on
            the CPU, which is faster than torch and equal up to rounding.

    Attributes:
        model: The model; its parameters are trained in place.
        module: The policy's `PolicyModule` on the learner's device, for losses to use.
        config: The settings.
        entropy_coef: Present value of the setting, which may follow a schedule.
    """

    config: Any
    entropy_coef: float

    make_policy = staticmethod(actor_critic_policy)

    def __init__(
        self,
        policy: Any,
        config: AdvantageConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
        fused: bool = True,
    ) -> None:
        self.model = policy.model
        self.config, self.peers = config, peers
        self._place: Placement[PolicyModule] = Placement(self.model, config.device, config.compile)
        self.module = self._place.module
        self._optimizer = self._make_optimizer(self._place.flat.tensor)
        # The derived gradients standardise advantages over this learner's rows only.
        is_fused = fused and peers.size == 1
        self._fused = fused_gradient(policy, config, self._place) if is_fused else None
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None

    @abstractmethod
    def _make_optimizer(self, parameters: Tensor) -> Adam | RMSProp:
        """Return the optimizer of all parameters, float32 ``[size]``."""

    @abstractmethod
    def loss(self, batch: Minibatch) -> Scalars:
        """Return the scalar tensor ``loss`` to be differentiated, and metrics, by name."""

    def _batch(self, rollout: Rollout, length: int) -> Minibatch:
        """Scale rewards if set, estimate advantages, and cut the rollout into pieces."""
        reward = rollout.reward
        if self._rewards:
            reward = self._rewards.scale(rollout, self.peers.gather)
        config = self.config
        return advantage_batch(
            rollout, reward, self._place, config.gamma, config.gae_lambda, length
        )

    def _step(self, batch: Minibatch, learning_rate: float) -> dict[str, float]:
        """Take one gradient step on the steps of a minibatch; return metrics."""
        gradient, scalars = loss_gradient(self, batch, self._fused, self._place.flat)
        loss, norm = scalars.pop("loss"), self.config.max_grad_norm
        peers, rows = self.peers, len(batch.action)
        return gradient_step(
            self._optimizer, loss, gradient, learning_rate, norm, scalars, peers, rows
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])


def standardized(x: Tensor, peers: Peers = ALONE) -> Tensor:
    """Scale ``x`` of all learners to zero mean and unit deviation; a single number is unchanged."""
    if peers.size == 1:
        return (x - x.mean()) / (x.std(correction=0) + 1e-8) if len(x) > 1 else x
    found = together(peers.gather(Moments.of(x)))
    deviation = math.sqrt(found.squares / max(found.num_rows, 1))
    return (x - found.mean) / (deviation + 1e-8) if found.num_rows > 1 else x


def explained_variance(value: Tensor, returns: Tensor) -> float:
    """Return ``1 - Var(returns - value) / Var(returns)``: 1 is perfect, 0 as good as the mean."""
    if not len(value):
        return 0.0
    error, spread = (returns - value).var(correction=0), returns.var(correction=0)
    return float(1.0 - error / spread.clamp_min(1e-12))
