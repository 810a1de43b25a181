"""IMPALA (Espeholt et al. 2018), to be read from top to bottom.

Actors go on while the learner learns, so a rollout was made by weights that are some versions old.
One `Impala.update`: evaluate all that was observed under the present weights, correct by V-trace
for what the actors would have done differently, and take one gradient step.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.learn.adam import Adam
from rookery.learn.base import Learner, actor_critic_policy
from rookery.learn.batch import observe
from rookery.learn.config import ImpalaConfig
from rookery.learn.losses import (
    Loss,
    approximate_kl,
    explained_variance,
    policy_gradient_loss,
    standardize,
    value_loss,
)
from rookery.learn.schedule import clip_norm, scheduled
from rookery.learn.vtrace import VTrace, vtrace
from rookery.policy.network import Evaluation, network_for
from rookery.rollout import Rollout
from rookery.rollout.tree import Tree, merge_axes, take, tree_map

Floats: TypeAlias = npt.NDArray[np.float32]


class Values(NamedTuple):
    """Present values of all that a rollout observed.

    Attributes:
        value: float32 ``[T, B]``.
        last_value: float32 ``[B]``.
        final_value: float32 ``[T, B]``, zero where no episode was truncated.
    """

    value: Floats
    last_value: Floats
    final_value: Floats


class Impala(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        config: the settings.
    """

    collectors = ("async", "workers", "caller")
    log_steps = 1000

    make_policy = staticmethod(actor_critic_policy)

    def __init__(self, policy: Any, config: ImpalaConfig, num_envs: int, seed: int = 0) -> None:
        self.model = policy.model
        self.config = config
        self._network = network_for(self.model, config.device, config.compile)
        self._optimizer = Adam(self._network.parameters)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        """Learn from a rollout, of whatever version; see `Learner.update`."""
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self._entropy_coef = scheduled(config.entropy_coef, None, progress)
        with self._network.learning():
            metrics = self._step(rollout, learning_rate) if rollout.valid.any() else {}
        observe(rollout, self.model)
        return {**metrics, "learning_rate": learning_rate}

    def _step(self, rollout: Rollout, learning_rate: float) -> dict[str, float]:
        """Take one gradient step on ``policy + value_coef * value - entropy_coef * entropy``."""
        config = self.config
        now, values = self._evaluate(rollout)
        log_ratio = now.log_prob[: rollout.num_transitions] - rollout.log_prob.ravel()
        corrected = self._correct(rollout, log_ratio, values)
        rows = np.flatnonzero(rollout.valid)
        log_ratio = log_ratio[rows]
        advantage = corrected.advantage.ravel()[rows]
        if config.normalize_advantage:
            advantage = standardize(advantage)
        target, before = corrected.target.ravel()[rows], values.value.ravel()[rows]
        policy = policy_gradient_loss(now.log_prob[rows], advantage)
        value = value_loss(before, target)
        gradient = self._gradient(now, rows, policy, value)
        norm = clip_norm(gradient, config.max_grad_norm)
        self._optimizer.step(gradient, learning_rate)
        return {
            "policy_loss": policy.mean,
            "value_loss": value.mean,
            "entropy": float(now.entropy[rows].mean()),
            "approximate_kl": approximate_kl(log_ratio, np.exp(log_ratio)),
            "clip_fraction": float((np.exp(log_ratio) > config.rho_clip).mean()),
            "gradient_norm": norm,
            "explained_variance": explained_variance(before, target),
        }

    def _evaluate(self, rollout: Rollout) -> tuple[Evaluation, Values]:
        """Evaluate, in one pass, what was acted on, then the last and the cut-off observations.

        The evaluation has ``T * B`` rows and more; the actions of those are made up.
        """
        t, b = rollout.final_index.T
        cut = rollout.truncated[t, b] & ~rollout.terminated[t, b]
        parts = merge_axes(rollout.obs), rollout.last_obs, take(rollout.final_obs, cut)
        obs: Tree = tree_map(lambda *arrays: np.concatenate(arrays), *parts)
        action = merge_axes(rollout.action)
        made_up = np.broadcast_to(action[:1], (rollout.num_envs + cut.sum(), *action.shape[1:]))
        now = self._network.evaluate(
            self.model.encode(obs), self.model.head.encode(np.concatenate([action, made_up]))
        )
        acted, last, final = np.split(now.value, np.cumsum([len(action), rollout.num_envs]))
        final_value = np.zeros_like(rollout.reward)
        final_value[t[cut], b[cut]] = final
        return now, Values(acted.reshape(rollout.reward.shape), last, final_value)

    def _correct(self, rollout: Rollout, log_ratio: Floats, values: Values) -> VTrace:
        config = self.config
        return vtrace(
            log_ratio.reshape(rollout.reward.shape),
            rollout.reward,
            values.value,
            values.last_value,
            rollout.terminated,
            rollout.truncated,
            values.final_value,
            gamma=config.gamma,
            rho_clip=config.rho_clip,
            c_clip=config.c_clip,
            trace_lambda=config.trace_lambda,
            valid=rollout.valid,
        )

    def _gradient(
        self, now: Evaluation, rows: npt.NDArray[np.int64], policy: Loss, value: Loss
    ) -> Any:
        """The gradient by all parameters; rows that were only valued, or invalid, get none."""
        d_log_prob, d_entropy, d_value = np.zeros((3, len(now.value)), np.float32)
        d_log_prob[rows] = policy.gradient
        d_entropy[rows] = -self._entropy_coef / len(rows)
        d_value[rows] = value.gradient * np.float32(self.config.value_coef)
        return now.backward(d_log_prob, d_entropy, d_value)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
