"""IMPALA (Espeholt et al. 2018), to be read from top to bottom.

Actors continue while the learner learns, so the weights that made a rollout may be several versions
old. One `Impala.update` evaluates the rollout with the present weights, corrects the difference
between the two policies with V-trace, and takes one gradient step.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.learn.base import Learner, observe
from rookery.learn.config import ImpalaConfig
from rookery.learn.on_policy.actor_critic import (
    Scalars,
    actor_critic_policy,
    explained_variance,
    standardized,
)
from rookery.learn.on_policy.batches import actions_of, legal_choices, observed, remembered
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.parallel.peers import ALONE, Peers, any_of
from rookery.learn.placement import Placement
from rookery.learn.schedule import scheduled
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import Rollout
from rookery.rollout.returns import following_value

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]


class Present(NamedTuple):
    """Outputs of the network for a rollout under the present weights.

    Attributes:
        outputs: float32 ``[T * B, num_outputs]``, inputs of the action distributions.
        value: float32 ``[T, B]``, values of the observations.
        last_value: float32 ``[B]``, values of the observations after the last step, without a
            gradient.
        final_value: float32 ``[T, B]``, values of the final observations of truncated episodes,
            without a gradient; zero elsewhere.
    """

    outputs: Tensor
    value: Tensor
    last_value: Tensor
    final_value: Tensor


class Impala(Learner):
    """The IMPALA learner, which writes the weights of ``policy.model`` in place.

    Args:
        policy: The policy to train, as `make_policy` builds it.
        config: The settings.
        num_envs: Number of envs of every rollout; not used.
        seed: Not used, because IMPALA draws nothing.
        peers: Learners that train the same weights together.

    Attributes:
        model: The model; its parameters are trained in place.
        module: The policy's `PolicyModule` on the learner's device, for losses to use.
        config: The settings.
        entropy_coef: Present value of the setting, which may follow a schedule.
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
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            with self._place.learning():
                scalars = self.loss(rollout)
                # Not a mean over rows, so the learners must not average it.
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
        """Run the network on the observations, the last ones and those at truncations."""
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
        """Return V-trace's targets and advantages, ``[T, B]`` each, as constants of the loss."""
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


# ---------------------------------------------------------------- V-trace


class VTrace(NamedTuple):
    """Value targets and advantages of a rollout.

    Attributes:
        target: float32 ``[T, B]``, ``v_t``, the target of the value.
        advantage: float32 ``[T, B]``, the factor of the policy gradient; zero in invalid rows.
    """

    target: Floats
    advantage: Floats


def vtrace(
    log_ratio: Floats,
    reward: Floats,
    value: Floats,
    last_value: Floats,
    terminated: Flags,
    truncated: Flags,
    final_value: Floats,
    *,
    gamma: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    trace_lambda: float = 1.0,
    valid: Flags | None = None,
) -> VTrace:
    """Correct for the difference between the policy that acted and the policy that is trained.

    Espeholt et al. (2018), "IMPALA", section 4.1. With ``rho_t = min(rho_clip, pi / mu)`` and
    ``c_t = lambda * min(c_clip, pi / mu)`` (their remark 2), equation 1 in its recursive form
    (remark 1) is::

        v_t - V_t = rho_t * (r_t + gamma * V_{t+1} - V_t) + gamma * c_t * (v_{t+1} - V_{t+1})

    and the policy gradient of section 4.2 has the factor ``rho_t * (r_t + gamma * v_{t+1} - V_t)``.
    If both policies are the same (``log_ratio`` is zero), targets are n-step returns. At the end of
    an episode, ``V_{t+1}`` and ``v_{t+1}`` are zero after a termination and ``final_value`` after a
    truncation. Nothing is carried over from the next row, which belongs to another episode.

    Args:
        log_ratio: float32 ``[T, B]``, ``log pi - log mu`` of the taken actions. ``pi`` is the
            policy that is trained, ``mu`` the policy that acted.
        reward: float32 ``[T, B]``, rewards of the steps.
        value: float32 ``[T, B]``, present values of the observations acted on.
        last_value: float32 ``[B]``, present values of the observations after the last row.
        terminated: bool ``[T, B]``, True where an episode terminated.
        truncated: bool ``[T, B]``, True where an episode was truncated.
        final_value: float32 ``[T, B]``, read where ``truncated`` and not ``terminated``.
        gamma: Discount.
        rho_clip: Decides which policy's value is learned; with infinity, the value of ``pi``.
        c_clip: Decides how far corrections reach back in time.
        trace_lambda: Lambda; 0 uses one step.
        valid: bool ``[T, B]``. The target of an invalid row is its value, so that the row before it
            bootstraps from that value.
    """
    ratio = np.exp(log_ratio)
    rho = np.minimum(rho_clip, ratio)
    decay = gamma * trace_lambda * np.minimum(c_clip, ratio)
    decay = np.where(terminated | truncated, 0.0, decay)
    if valid is not None:
        rho, decay = np.where(valid, rho, 0.0), np.where(valid, decay, 0.0)
    next_value = following_value(value, last_value, terminated, truncated, final_value)
    correction = np.asarray(rho * (reward + gamma * next_value - value), np.float32)
    for t in range(len(reward) - 2, -1, -1):
        correction[t] += decay[t] * correction[t + 1]
    target = value + correction
    next_target = following_value(target, last_value, terminated, truncated, final_value)
    advantage = rho * (reward + gamma * next_target - value)
    return VTrace(np.asarray(target, np.float32), np.asarray(advantage, np.float32))
