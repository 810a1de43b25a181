"""Deep Q-learning, to be read from top to bottom.

Mnih et al. (2015) with what Hessel et al. (2018) found to help: double Q-learning (van Hasselt et
al. 2016), dueling networks (Wang et al. 2016), returns of n steps (Sutton 1988) and prioritised
replay (Schaul et al. 2016), each of them a setting.
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
from rookery.learn.config import DQNConfig
from rookery.learn.losses import huber_loss
from rookery.learn.schedule import clip_norm, means, scheduled
from rookery.policy.encoder import Features
from rookery.policy.epsilon_greedy import EpsilonGreedyPolicy
from rookery.policy.network import Network, network_for
from rookery.policy.old_factory import actor_critic_policy
from rookery.policy.old_model import ActorCriticModel
from rookery.rollout import Rollout
from rookery.rollout.replay import Replay, Transitions

Floats: TypeAlias = npt.NDArray[np.float32]


class DQN(Learner):
    """The learner. It writes the weights of ``policy.model`` and the policy's epsilon.

    The actor's outputs are action values; with ``dueling`` they are advantages, and the critic's
    is the value of the state. The greatest output is the best action either way.

    Attributes:
        policy: whose exploration follows the schedule.
        config: the settings.
    """

    reads_values = False
    keeps_replay = True
    collectors = ("caller",)
    log_steps = 1000

    @staticmethod
    def make_policy(
        config: DQNConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        seed: int,
    ) -> EpsilonGreedyPolicy:
        greedy = actor_critic_policy(config, observation_space, action_space, seed)
        return EpsilonGreedyPolicy(greedy, action_space)

    def __init__(
        self, policy: EpsilonGreedyPolicy, config: DQNConfig, num_envs: int, seed: int = 0
    ) -> None:
        self.policy = policy
        self.config = config
        self._model = model = policy.model
        self._target = ActorCriticModel(model.spec, model.parameters.copy())
        self._network = network_for(model, config.device, config.compile)
        self._target_network = network_for(self._target, config.device, config.compile)
        self._optimizer = Adam(self._network.parameters)
        self._replay = Replay(
            config.replay_rows(num_envs),
            num_envs,
            gamma=config.gamma,
            n_step=config.n_step,
            priority_exponent=config.priority_exponent if config.prioritized else None,
        )
        self._budget = UpdateBudget(config.updates_per_step, config.warmup_steps)
        self._rng = np.random.default_rng(seed)
        self._gradient_steps = 0
        policy.epsilon = config.initial_epsilon

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        self._replay.add(rollout)
        observe(rollout, self._model)
        due = self._budget.spend(rollout.num_transitions)
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        beta = scheduled(config.priority_correction, 1.0, progress)
        steps = []
        if due and len(self._replay):
            with self._network.learning(), self._target_network.learning():
                steps = [self._step(learning_rate, beta) for _ in range(due)]
        explored = progress / max(config.exploration_fraction, 1e-9)
        self.policy.epsilon = scheduled(config.initial_epsilon, config.final_epsilon, explored)
        schedules = {"epsilon": self.policy.epsilon, "learning_rate": learning_rate}
        return {**means(steps), **schedules, "gradient_steps": float(self._gradient_steps)}

    def _step(self, learning_rate: float, beta: float) -> dict[str, float]:
        """Take one gradient step on the error of the action values."""
        config = self.config
        batch = self._replay.sample(config.batch_size, self._rng, beta)
        target = self._targets(batch)
        now = self._network.forward(self._model.encode(batch.obs))
        values = action_values(now.outputs, now.value, config.dueling)
        rows, action = np.arange(len(target)), self._model.head.encode(batch.action)[:, 0]
        loss = huber_loss(values[rows, action], target, batch.weight)
        d_values = np.zeros_like(values)
        d_values[rows, action] = loss.gradient
        gradient = now.backward(*action_values_backward(d_values, config.dueling))
        norm = clip_norm(gradient, config.max_grad_norm)
        self._optimizer.step(gradient, learning_rate)
        error = values[rows, action] - target
        self._replay.set_errors(batch.place, error)
        self._follow()
        return {
            "value_loss": loss.mean,
            "action_value": float(values.mean()),
            "td_error": float(np.abs(error).mean()),
            "gradient_norm": norm,
        }

    def _targets(self, batch: Transitions) -> Floats:
        """What the action values should be, float32 ``[N]``.

        ``r + discount * Q'(s', argmax_a Q'(s', a))``, Mnih et al. (2015), algorithm 1, with the
        target network's Q'; double Q-learning takes the argmax of the online network's Q, van
        Hasselt et al. (2016), equation 4.
        """
        features = self._model.encode(batch.next_obs)
        values = self._values(self._target_network, features)
        chooser = self._values(self._network, features) if self.config.double else values
        best = values[np.arange(len(values)), chooser.argmax(axis=1)]
        return np.asarray(batch.reward + batch.discount * best, np.float32)

    def _values(self, network: Network, features: Features) -> Floats:
        outputs, value, _ = network.forward(features)
        return action_values(outputs, value, self.config.dueling)

    def _follow(self) -> None:
        """Move the target network towards the online one, if it is time."""
        self._gradient_steps += 1
        if self._gradient_steps % self.config.target_interval == 0:
            target, online = self._target_network.parameters, self._network.parameters
            target += (online - target) * np.float32(self.config.target_rate)

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizer": self._optimizer.state_dict(),
            "target": self._target.parameters.copy(),
            "budget": self._budget.state_dict(),
            "rng": self._rng.bit_generator.state,
            "gradient_steps": self._gradient_steps,
            "epsilon": self.policy.epsilon,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        self._target.parameters[...] = state["target"]
        self._budget.load_state_dict(state["budget"])
        self._rng.bit_generator.state = state["rng"]
        self._gradient_steps = int(state["gradient_steps"])
        self.policy.epsilon = float(state["epsilon"])

    def replay_state(self) -> dict[str, Any] | None:
        return self._replay.state_dict() if self.config.save_replay else None

    def load_replay_state(self, state: dict[str, Any]) -> None:
        self._replay.load_state_dict(state)


def action_values(outputs: Floats, value: Floats, dueling: bool) -> Floats:
    """Turn a network's results into action values, float32 ``[N, A]``.

    Wang et al. (2016), equation 9: ``Q(s, a) = V(s) + A(s, a) - mean_b A(s, b)``.

    Args:
        outputs: float32 ``[N, A]``; the action values themselves where not ``dueling``.
        value: float32 ``[N]``, V.
        dueling: whether ``outputs`` are advantages.
    """
    if not dueling:
        return outputs
    return np.asarray(outputs + (value - outputs.mean(axis=1))[:, None])


def action_values_backward(d_values: Floats, dueling: bool) -> tuple[Floats, Floats]:
    """Turn the gradient by action values, ``[N, A]``, into those by outputs and value."""
    if not dueling:
        return d_values, np.zeros(len(d_values), np.float32)
    return d_values - d_values.mean(axis=1, keepdims=True), d_values.sum(axis=1)
