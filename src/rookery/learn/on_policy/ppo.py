"""Proximal policy optimisation (Schulman et al. 2017), to be read from top to bottom.

One `PPO.update`: scale rewards, estimate advantages over all envs at once, make minibatches of the
valid transitions, and take a clipped gradient step on each of them, several times over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rookery.common.trees import Tree, merge_axes, tree_map
from rookery.learn.base import Learner, actor_critic_policy, observe
from rookery.learn.config import PPOConfig
from rookery.learn.optimizers import Adam, gradient_step
from rookery.learn.parallel.averages import Moments, together
from rookery.learn.parallel.peers import ALONE, Peers, SharedPieces, any_of
from rookery.learn.placement import Placement, fused_gradient, loss_gradient
from rookery.learn.schedule import means, scheduled
from rookery.policy.actions import action_masks
from rookery.policy.base import MINIBATCHES, seed_for
from rookery.policy.torch.networks import Prediction
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import RewardScaler, Rollout, gae

Scalars: TypeAlias = dict[str, Any]


class PPO(Learner):
    """The learner. It writes the weights of ``policy.model`` in place.

    Args:
        policy: as `make_policy` builds it.
        config: the settings.
        num_envs: of every rollout.
        seed: of the minibatches' order.
        peers: learners that learn the same weights together.
        fused: whether ``rookery.learn.fast`` may compute the gradient of this class's own `loss`
            on the cpu, which is faster than torch and equal up to rounding.

    Attributes:
        model: whose parameters are learned; policies that act with it see every change.
        module: the policy's `PolicyModule` on the learner's device, for losses to read.
        config: the settings.
        clip_range: present value of the setting, which may follow a schedule.
        entropy_coef: present value of the setting, which may follow a schedule.
    """

    make_policy = staticmethod(actor_critic_policy)

    def __init__(
        self,
        policy: Any,
        config: PPOConfig,
        num_envs: int,
        seed: int = 0,
        peers: Peers = ALONE,
        fused: bool = True,
    ) -> None:
        self.model = policy.model
        self.config, self.peers = config, peers
        self._place: Placement[PolicyModule] = Placement(self.model, config.device, config.compile)
        self.module = self._place.module
        self._optimizer = Adam(self._place.flat.tensor)
        # The derived gradients standardise advantages over this learner's rows only.
        is_fused = fused and peers.size == 1
        self._fused = fused_gradient(policy, config, self._place) if is_fused else None
        self._rewards = RewardScaler(num_envs, config.gamma) if config.normalize_reward else None
        self._rng = np.random.default_rng(seed_for(seed, MINIBATCHES))

    def update(self, rollout: Rollout, progress: float = 0.0) -> dict[str, float]:
        config = self.config
        learning_rate = scheduled(config.learning_rate, config.final_learning_rate, progress)
        self.clip_range = scheduled(config.clip_range, config.final_clip_range, progress)
        self.entropy_coef = scheduled(config.entropy_coef, None, progress)
        metrics: dict[str, float] = {}
        if any_of(self.peers, rollout.valid.any()):
            reward = rollout.reward
            if self._rewards:
                reward = self._rewards.scale(rollout, self.peers.gather)
            length = config.sequence_length
            with self._place.learning():
                batch = advantage_batch(
                    rollout, reward, self._place, config.gamma, config.gae_lambda, length
                )
                metrics = self._epochs(batch, rollout.valid, learning_rate)
        # Only now: the statistics that this rollout was acted under hold through its epochs.
        observe(rollout, self.model, self.peers)
        return {**metrics, "learning_rate": learning_rate, "clip_range": self.clip_range}

    def _epochs(self, batch: Batch, valid: Any, learning_rate: float) -> dict[str, float]:
        """Pass over the batch up to ``num_epochs`` times; return the minibatches' mean metrics."""
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

    def _minibatches(self, batch: Batch, valid: Any) -> Iterator[tuple[int, Batch]]:
        """Every epoch, shuffle and cut into parts that are equally large but for one piece.

        Where several learn together, all cut everybody's pieces alike, and each takes its own.

        Args:
            batch: the pieces with valid steps.
            valid: bool ``[T, B]``, the steps to learn from.
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

    def _step(self, batch: Batch, learning_rate: float) -> dict[str, float]:
        """Take one gradient step on the steps of a minibatch."""
        gradient, scalars = loss_gradient(self, batch, self._fused, self._place.flat)
        loss, norm = scalars.pop("loss"), self.config.max_grad_norm
        peers, rows = self.peers, len(batch.action)
        return gradient_step(
            self._optimizer, loss, gradient, learning_rate, norm, scalars, peers, rows
        )

    def loss(self, batch: Batch) -> Scalars:
        """Compute the loss of a minibatch, to be differentiated, and its parts.

        Schulman et al. (2017), equation 9: ``L = E[L_clip - c1 L_vf + c2 S]``, negated, with the
        clipped surrogate of equation 7.

        This is the only definition of the objective. ``rookery.learn.fast`` has the gradient of
        this function derived by hand, and tests compare the two. A subclass's `loss` is
        differentiated by torch.

        Args:
            batch: as `Batch.steps` returns it.

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
        return {
            "optimizer": self._optimizer.state_dict(),
            "rewards": self._rewards.state_dict() if self._rewards else None,
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        if self._rewards:
            self._rewards.load_state_dict(state["rewards"])
        self._rng.bit_generator.state = state["rng"]


# The function that `rookery.learn.fast` was derived from. Subclasses, patches and edited copies of
# this file have another one.
LIBRARY_LOSS = PPO.loss


# ---------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True)
class Batch:
    """M pieces of L consecutive steps each, every piece of one env; without memory, L is 1.

    All are tensors where the module is, but text in observations, which stays with numpy.

    Attributes:
        obs: normalised, ``[L, M, *obs]``.
        action: ``[L, M, K]``, encoded by the layout of the actions.
        log_prob: float32 ``[L, M]``, when the action was drawn.
        value: float32 ``[L, M]``, when the action was drawn.
        advantage: float32 ``[L, M]``.
        returns: float32 ``[L, M]``, what the value should be.
        mask: bool ``[L, M, num_choices]``, the legal choices; None where all are.
        begins: bool ``[L, M]``, where an episode begins; None without memory.
        memory: float32 ``[M, memory_width]``, what was remembered before the first step.
        valid: bool ``[L, M]``, the steps to learn from; None means all.
    """

    obs: Tree
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    returns: Tensor
    mask: Tensor | None = None
    begins: Tensor | None = None
    memory: Tensor | None = None
    valid: Tensor | None = None

    @property
    def length(self) -> int:
        """L, steps of a piece."""
        return len(self.action)

    @property
    def num_pieces(self) -> int:
        """M."""
        return self.action.shape[1]

    def take(self, index: Any) -> Batch:
        """The pieces ``index``, int64 ``[m]``."""
        at = torch.from_numpy(index).to(self.action.device)
        found = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None and field.name != "memory":
                column = tree_map(
                    lambda x: x[:, index] if isinstance(x, np.ndarray) else x.index_select(1, at),
                    column,
                )
            found[field.name] = column
        if self.memory is not None:
            found["memory"] = self.memory[at]
        return Batch(**found)

    def steps(self) -> Batch:
        """The same with the columns behind ``obs`` as ``[N, ...]``, one row for each valid step."""
        valid = self.valid

        def rows(column: Any) -> Any:
            return column.flatten(0, 1) if valid is None else column[valid]

        names = ("action", "log_prob", "value", "advantage", "returns")
        columns = {name: rows(getattr(self, name)) for name in names}
        return replace(self, mask=None if self.mask is None else rows(self.mask), **columns)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a network says about N steps.

    Attributes:
        log_prob: float32 ``[N]``, of the actions that were taken.
        entropy: float32 ``[N]``.
        value: float32 ``[N]``.
    """

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


def evaluate(place: Placement[PolicyModule], batch: Batch) -> Evaluation:
    """Run a policy on what `Batch.steps` gives."""
    if batch.begins is None or batch.memory is None:
        found = place.run(merge_axes(batch.obs))
        outputs, value = found.outputs, found.value
    else:
        found = place.module.unroll(batch.obs, batch.begins, batch.memory)
        valid = torch.ones_like(batch.begins) if batch.valid is None else batch.valid
        outputs, value = found.outputs[valid], found.value[valid]
    drawn = place.module.distribution(outputs, batch.mask)
    return Evaluation(drawn.log_prob(batch.action), drawn.entropy(), value)


def advantage_batch(
    rollout: Rollout,
    reward: Any,
    place: Placement[PolicyModule],
    gamma: float,
    gae_lambda: float,
    length: int,
) -> Batch:
    """Estimate advantages, and cut a rollout into pieces; those without valid steps are left out.

    A piece begins with what was remembered when the rollout was collected, so gradients flow back
    through ``length`` steps at most.

    Args:
        rollout: what was experienced; its first memory included.
        reward: float32 ``[T, B]``, the rollout's, or scaled.
        place: the policy, with the weights that acted.
        gamma: discount.
        gae_lambda: lambda of generalised advantage estimation.
        length: L, which divides T, of a policy that remembers.
    """
    num_steps, num_envs = rollout.reward.shape
    obs = observed(rollout, place)
    recall = recalled(rollout, obs, place) if place.module.memory_width else None
    length = length if recall else 1
    advantage, returns = gae(
        reward, rollout.value, rollout.last_value, rollout.terminated, rollout.truncated,
        rollout.final_value if recall is None else recall.final_value,
        gamma=gamma, gae_lambda=gae_lambda, valid=rollout.valid,
    )  # fmt: skip

    def cut(x: Any) -> Any:
        """From ``[T * B, ...]`` to pieces ``[L, T / L * B, ...]``."""
        pieces = x.reshape(num_steps // length, length, num_envs, *x.shape[1:]).swapaxes(0, 1)
        return pieces.reshape(length, num_steps // length * num_envs, *x.shape[1:])

    columns = rollout.log_prob, rollout.value, advantage, returns, rollout.valid
    log_prob, value, *targets, valid = [cut(place.tensors(x.reshape(-1))) for x in columns]
    mask = legal_choices(rollout, place)
    batch = Batch(
        tree_map(cut, obs), cut(actions_of(rollout, place)), log_prob, value, targets[0],
        targets[1], None if mask is None else cut(mask),
    )  # fmt: skip
    if recall is not None:
        before = torch.cat([recall.first[None], recall.after[length - 1 : -1 : length]])
        begins, memory = cut(recall.begins.reshape(-1)), before.flatten(0, 1)
        batch = replace(batch, begins=begins, memory=memory, valid=valid)
    if rollout.valid.all():
        return batch
    return batch.take(np.flatnonzero(valid.any(0).cpu().numpy()))


def observed(rollout: Rollout, place: Placement[PolicyModule]) -> Tree:
    """The observations that were acted on, normalised: tensors ``[T * B, *obs]``."""
    return place.module.normalize(place.tensors(merge_axes(rollout.obs)))


def actions_of(rollout: Rollout, place: Placement[PolicyModule]) -> Tensor:
    """The actions that were taken, as distributions read them: ``[T * B, K]``."""
    rows: Tensor = place.tensors(place.module.layout.unpack(merge_axes(rollout.action)))
    return rows


def legal_choices(rollout: Rollout, place: Placement[PolicyModule]) -> Tensor | None:
    """The masks that were acted under, bool ``[T * B, num_choices]``; None where there are none."""
    if not place.module.has_action_mask:
        return None
    found: Tensor = place.tensors(action_masks(merge_axes(rollout.obs)))
    return found


class Recall(NamedTuple):
    """What a policy that remembers did remember in a rollout.

    Attributes:
        first: float32 ``[B, memory_width]``, before the first step.
        after: float32 ``[T, B, memory_width]``, after every step.
        begins: bool ``[T, B]``, where an episode begins within the rollout.
        final_value: float32 ``[T, B]``, values of the true final observations of truncated
            episodes; zero elsewhere.
    """

    first: Tensor
    after: Tensor
    begins: Tensor
    final_value: Any


@torch.no_grad()
def recalled(rollout: Rollout, obs: Tree, place: Placement[PolicyModule]) -> Recall:
    """Go through a rollout again under the weights that acted.

    Args:
        rollout: what was experienced.
        obs: as `observed` gives them.
        place: the policy.
    """
    found, first, begins = remembered(rollout, obs, place)
    assert found.memory is not None
    final_value = np.zeros_like(rollout.final_value)
    final_obs, t, b = rollout.cut_off()
    if len(t):
        value = place.module(place.tensors(final_obs), found.memory[t, b]).value
        final_value[t, b] = value.cpu().numpy()
    return Recall(first, found.memory, begins, final_value)


def remembered(
    rollout: Rollout, obs: Tree, place: Placement[PolicyModule]
) -> tuple[Prediction, Tensor, Tensor]:
    """Run a policy that remembers on a rollout, from the memory with which it began.

    Returns:
        Outputs ``[T, B, num_outputs]``, values and memories, see `PolicyModule.unroll`; the memory
        before the first step, float32 ``[B, memory_width]``; and where episodes begin within the
        rollout, bool ``[T, B]``.
    """
    assert rollout.memory is not None, "a policy that remembers tells what it did"
    begins = np.zeros_like(rollout.done)
    begins[1:] = rollout.done[:-1]
    first, starts = place.tensors(rollout.memory), place.tensors(begins)
    steps = tree_map(lambda x: x.reshape(*begins.shape, *x.shape[1:]), obs)
    return place.module.unroll(steps, starts, first), first, starts


# ---------------------------------------------------------------- numbers


def standardized(x: Tensor, peers: Peers = ALONE) -> Tensor:
    """Bring everybody's ``x`` to zero mean and unit deviation; a single number stays as it is."""
    if peers.size == 1:
        return (x - x.mean()) / (x.std(correction=0) + 1e-8) if len(x) > 1 else x
    found = together(peers.gather(Moments.of(x)))
    deviation = math.sqrt(found.squares / max(found.num_rows, 1))
    return (x - found.mean) / (deviation + 1e-8) if found.num_rows > 1 else x


def explained_variance(value: Tensor, returns: Tensor) -> float:
    """``1 - Var(returns - value) / Var(returns)``: 1 is perfect, 0 no better than the mean."""
    if not len(value):
        return 0.0
    error, spread = (returns - value).var(correction=0), returns.var(correction=0)
    return float(1.0 - error / spread.clamp_min(1e-12))
