"""Soft actor-critic, to be read from top to bottom.

Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications": two critics, a squashed
Gaussian actor, and an entropy coefficient that is learned along with them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.learn.adam import Adam
from rookery.learn.base import Learner
from rookery.learn.batch import observe
from rookery.learn.budget import UpdateBudget
from rookery.learn.config import SACConfig
from rookery.learn.schedule import means, scheduled
from rookery.policy.squashed_gaussian import SquashedGaussianModel, SquashedGaussianPolicy
from rookery.policy.stack import MLPStack
from rookery.rollout import Rollout
from rookery.rollout.replay import Replay, Transitions

Floats: TypeAlias = npt.NDArray[np.float32]


class SAC(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Attributes:
        model: the actor's weights; policies that act with it see every change.
        config: the settings.
    """

    reads_values = False
    keeps_replay = True
    collectors = ("caller",)
    log_steps = 1000

    @staticmethod
    def make_policy(
        config: SACConfig,
        observation_space: spaces.Space[Any],
        action_space: Any,
        seed: int,
    ) -> SquashedGaussianPolicy:
        model = SquashedGaussianModel(
            observation_space,
            action_space,
            hidden_sizes=config.hidden_sizes,
            activation=config.activation,
            normalize_obs=config.normalize_obs,
            seed=seed,
        )
        return SquashedGaussianPolicy(model, action_space, seed)

    def __init__(
        self, policy: SquashedGaussianPolicy, config: SACConfig, num_envs: int, seed: int = 0
    ) -> None:
        self.model = model = policy.model
        self.config = config
        self._critics, self._targets = (_critics(model, config, seed) for _ in range(2))
        self._log_alpha = np.zeros(1, np.float32)
        self._actor_optimizer = Adam(model.parameters)
        self._critic_optimizer = Adam(self._critics.parameters)
        self._alpha_optimizer = Adam(self._log_alpha)
        self._replay = Replay(
            config.replay_rows(num_envs), num_envs, gamma=config.gamma, n_step=config.n_step
        )
        self._budget = UpdateBudget(config.updates_per_step, config.warmup_steps)
        self._rng = np.random.default_rng(seed)
        self._gradient_steps = 0

    @property
    def alpha(self) -> float:
        """The entropy coefficient."""
        fixed = self.config.entropy_coef
        return float(np.exp(self._log_alpha[0])) if fixed is None else fixed

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        self._learning_rate = scheduled(self.config.learning_rate, None, progress)
        self._replay.add(rollout)
        observe(rollout, self.model)
        due = self._budget.spend(rollout.num_transitions)
        steps = [self._step() for _ in range(due)] if due and len(self._replay) else []
        return {**means(steps), "gradient_steps": float(self._gradient_steps)}

    def _step(self) -> dict[str, float]:
        """Take one gradient step on the critics, the actor and the entropy coefficient."""
        batch = self._replay.sample(self.config.batch_size, self._rng)
        vector = self.model.encode(batch.obs)
        critics = self._improve_critics(batch, vector)
        actor = self._improve_actor(vector)
        target, rate = self._targets.parameters, np.float32(self.config.target_rate)
        target += rate * (self._critics.parameters - target)
        self._gradient_steps += 1
        return {**critics, **actor}

    def _improve_critics(self, batch: Transitions, vector: Floats) -> dict[str, float]:
        """Equations 5 and 6: both critics regress on the soft value of what followed."""
        target = self._soft_targets(batch)
        action = batch.action.reshape(len(target), -1)
        done = self._critics.forward(np.concatenate([vector, action], axis=1, dtype=np.float32))
        error = done.outputs[:, :, 0] - target
        # The loss is the mean of error^2 / 2, of each critic by itself.
        gradient = self._critics.backward(done, error[:, :, None] / np.float32(len(target)))
        self._critic_optimizer.step(gradient, self._learning_rate)
        return {
            "value_loss": float(0.5 * np.square(error).mean()),
            "action_value": float(done.outputs.mean()),
        }

    def _soft_targets(self, batch: Transitions) -> Floats:
        """``r + discount * (min_k Q'_k(s', a') - alpha log pi(a' | s'))`` with a' drawn now.

        Equations 3 and 5; the lesser of two target critics, section 5.
        """
        vector = self.model.encode(batch.next_obs)
        drawn = self.model.sample(vector, self._rng)
        read = np.concatenate([vector, drawn.action], axis=1)
        value = self._targets.forward(read).outputs[:, :, 0].min(axis=0)
        soft = value - np.float32(self.alpha) * drawn.log_prob
        return np.asarray(batch.reward + batch.discount * soft, np.float32)

    def _improve_actor(self, vector: Floats) -> dict[str, float]:
        """Equations 7 and 9: ``mean(alpha log pi(a | s) - min_k Q_k(s, a))`` falls."""
        size = np.float32(len(vector))
        alpha = self.alpha
        drawn = self.model.sample(vector, self._rng)
        done = self._critics.forward(np.concatenate([vector, drawn.action], axis=1))
        values = done.outputs[:, :, 0]
        lesser = values.argmin(axis=0)
        # Only the lesser critic of each row is in the loss.
        d_values = np.where(np.arange(len(values))[:, None] == lesser, -1.0 / size, 0.0)
        d_read = self._critics.input_gradient(done, d_values[:, :, None].astype(np.float32))
        d_action = d_read[:, vector.shape[1] :]
        d_log_prob = np.full(len(vector), alpha / size, np.float32)
        d_outputs = drawn.d_outputs(d_action, d_log_prob)
        gradient = self.model.actor.backward(drawn.done, d_outputs)
        self._actor_optimizer.step(gradient, self._learning_rate)
        self._adjust_alpha(drawn.log_prob, drawn.action.shape[1])
        return {
            "policy_loss": float((alpha * drawn.log_prob - values.min(axis=0)).mean()),
            "entropy": -float(drawn.log_prob.mean()),
            "entropy_coef": alpha,
        }

    def _adjust_alpha(self, log_prob: Floats, num_actions: int) -> None:
        """Equation 18: ``mean(-alpha (log pi + target entropy))`` falls, by log alpha."""
        if self.config.entropy_coef is not None:
            return
        target = self.config.target_entropy
        target = -float(num_actions) if target is None else target
        gradient = -self.alpha * float(log_prob.mean() + target)
        self._alpha_optimizer.step(np.array([gradient], np.float32), self._learning_rate)

    def state_dict(self) -> dict[str, Any]:
        return {
            "critics": self._critics.parameters.copy(),
            "targets": self._targets.parameters.copy(),
            "log_alpha": self._log_alpha.copy(),
            "actor_optimizer": self._actor_optimizer.state_dict(),
            "critic_optimizer": self._critic_optimizer.state_dict(),
            "alpha_optimizer": self._alpha_optimizer.state_dict(),
            "budget": self._budget.state_dict(),
            "rng": self._rng.bit_generator.state,
            "gradient_steps": self._gradient_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._critics.parameters[...] = state["critics"]
        self._targets.parameters[...] = state["targets"]
        self._log_alpha[...] = state["log_alpha"]
        self._actor_optimizer.load_state_dict(state["actor_optimizer"])
        self._critic_optimizer.load_state_dict(state["critic_optimizer"])
        self._alpha_optimizer.load_state_dict(state["alpha_optimizer"])
        self._budget.load_state_dict(state["budget"])
        self._rng.bit_generator.state = state["rng"]
        self._gradient_steps = int(state["gradient_steps"])

    def replay_state(self) -> dict[str, Any] | None:
        return self._replay.state_dict() if self.config.save_replay else None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._replay.load_state_dict(state)


def _critics(model: SquashedGaussianModel, config: SACConfig, seed: int) -> MLPStack:
    """Build two critics that read observation and action; the same seed gives the same ones."""
    inputs = model.encoder.size + model.num_actions
    sizes = (inputs, *model.hidden_sizes, 1)
    # The seed itself gave the actor its weights.
    return MLPStack(2, sizes, config.activation, seed=seed + 1)
