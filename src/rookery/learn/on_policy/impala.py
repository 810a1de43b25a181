"""IMPALA (Espeholt et al. 2018), to be read from top to bottom.

Actors go on while the learner learns, so a rollout was made by weights that are some versions old.
One `Impala.update`: evaluate all that was observed under the present weights, correct by V-trace
for what the actors would have done differently, and take one gradient step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rookery.learn.base import Learner, actor_critic_policy, observe
from rookery.learn.config import ImpalaConfig
from rookery.learn.on_policy.ppo import (
    Scalars,
    actions_of,
    explained_variance,
    legal_choices,
    observed,
    remembered,
    standardized,
)
from rookery.learn.on_policy.vtrace import vtrace
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.parallel.peers import ALONE, Peers, any_of
from rookery.learn.placement import Placement
from rookery.learn.schedule import scheduled
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import Rollout


class Present(NamedTuple):
    """What the present weights make of a rollout.

    Attributes:
        outputs: float32 ``[T * B, num_outputs]``.
        value: float32 ``[T, B]``.
        last_value: float32 ``[B]``, without a gradient.
        final_value: float32 ``[T, B]``, without a gradient; zero where no episode was truncated.
    """

    outputs: Tensor
    value: Tensor
    last_value: Tensor
    final_value: Tensor


class Impala(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Args:
        policy: who acts, as `make_policy` makes it.
        config: the settings.
        num_envs: of the rollouts; IMPALA does not depend on it.
        seed: IMPALA draws nothing.
        peers: those who learn these weights together; alone unless told.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        module: the policy's `PolicyModule` on the learner's device, for losses to read.
        config: the settings.
        entropy_coef: present value of the setting, which may follow a schedule.
    """

    collectors = ("async", "workers", "caller")
    log_steps = 1000

    make_policy = staticmethod(actor_critic_policy)

    def __init__(
        self,
        policy: Any,
        config: ImpalaConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
    ) -> None:
        self.model = policy.model
        self.config, self.peers = config, peers
        self._place: Placement[PolicyModule] = Placement(self.model, config.device, config.compile)
        self.module = self._place.module
        self._optimizer = Adam(self._place.flat.tensor)

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        """Learn from a rollout, of whatever version.

        Args:
            rollout: what was experienced; it may be overwritten after the call.
            progress: how much of the training is done, from 0 to 1; moves schedules.

        Returns:
            Metrics by name; docs/metrics.md explains them.
        """
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            with self._place.learning():
                scalars = self.loss(rollout)
                # Not a mean over rows, so it is not averaged over the learners with the others.
                variance = scalars.pop("explained_variance", None)
                loss = scalars.pop("loss")
                gradient = self._place.flat.gradient(loss)
                norm, rows = config.max_grad_norm, int(rollout.valid.sum())
                metrics = gradient_step(
                    self._optimizer, loss, gradient, learning_rate, norm, scalars, self.peers, rows
                )
            if variance is not None:
                metrics["explained_variance"] = float(variance)
        observe(rollout, self.model, self.peers)
        return {**metrics, "learning_rate": learning_rate}

    def loss(self, rollout: Rollout) -> Scalars:
        """Compute the loss of a rollout, to be differentiated, and its parts: section 4.2.

        Returns:
            The scalar tensor ``loss``, and numbers to report as metrics, by name.
        """
        config, place = self.config, self._place
        now = self.evaluate(rollout)
        drawn = place.module.distribution(now.outputs, legal_choices(rollout, place))
        log_prob = drawn.log_prob(actions_of(rollout, place))
        log_ratio = log_prob.detach() - place.tensors(rollout.log_prob.reshape(-1))
        target, advantage = self._corrected(rollout, log_ratio, now)
        rows = place.tensors(np.flatnonzero(rollout.valid))
        log_ratio, before = log_ratio[rows], now.value.flatten()[rows]
        target, advantage = target.flatten()[rows], advantage.flatten()[rows]
        if config.normalize_advantage:
            advantage = standardized(advantage, self.peers)
        policy = -(log_prob[rows] * advantage).mean()
        value, entropy = (before - target).square().mean(), drawn.entropy()[rows].mean()
        return {
            "loss": policy + config.value_coef * value - self.entropy_coef * entropy,
            "policy_loss": policy,
            "value_loss": value,
            "entropy": entropy,
            "approximate_kl": (log_ratio.exp() - log_ratio).mean() - 1.0,
            "clip_fraction": (log_ratio.exp() > config.rho_clip).float().mean(),
            "explained_variance": torch.tensor(explained_variance(before.detach(), target)),
        }

    def evaluate(self, rollout: Rollout) -> Present:
        """Run on what was acted on, and on the last and the cut-off observations."""
        place, module = self._place, self._place.module
        shape = rollout.reward.shape
        final_obs, t, b = rollout.cut_off()
        obs = observed(rollout, place)
        last, ends = None, None
        if module.memory_width:
            found, *_ = remembered(rollout, obs, place)
            assert found.memory is not None
            keep = place.tensors((~rollout.done[-1]).astype(np.float32))[:, None]
            last, ends = found.memory[-1] * keep, found.memory[t, b]
        else:
            found = place.run(obs)
        with torch.no_grad():
            last_value = module(place.tensors(rollout.last_obs), last).value
            final_value = torch.zeros(shape, device=place.device)
            if len(t):
                final_value[t, b] = module(place.tensors(final_obs), ends).value
        outputs = found.outputs.reshape(-1, found.outputs.shape[-1])
        return Present(outputs, found.value.reshape(shape), last_value, final_value)

    def _corrected(self, rollout: Rollout, log_ratio: Tensor, now: Present) -> tuple[Tensor, ...]:
        """V-trace's targets and advantages, ``[T, B]`` each; they are constants of the loss."""
        config = self.config
        values = now.value, now.last_value, now.final_value
        value, last_value, final_value = (v.detach().cpu().numpy() for v in values)
        corrected = vtrace(
            log_ratio.cpu().numpy().reshape(rollout.reward.shape),
            rollout.reward,
            value,
            last_value,
            rollout.terminated,
            rollout.truncated,
            final_value,
            gamma=config.gamma,
            rho_clip=config.rho_clip,
            c_clip=config.c_clip,
            trace_lambda=config.trace_lambda,
            valid=rollout.valid,
        )
        tensors: tuple[Tensor, ...] = tuple(map(self._place.tensors, corrected))
        return tensors

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
