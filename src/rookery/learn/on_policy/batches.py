"""Minibatches of rollouts with advantages, and how a network evaluates them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rookery.common.trees import Tree, merge_axes, tree_map
from rookery.learn.placement import Placement
from rookery.policy.actions import action_masks
from rookery.policy.torch.networks import Prediction
from rookery.policy.torch.policy_module import PolicyModule
from rookery.rollout import Rollout, gae


@dataclass(frozen=True, slots=True)
class Minibatch:
    """M pieces of L consecutive steps of one env; L is 1 unless the network is recurrent.

    Columns are tensors on the device of the module. Only text in observations stays in numpy.

    Attributes:
        obs: Normalised observations, ``[L, M, *obs]``.
        action: ``[L, M, K]``, as rows of the action layout.
        log_prob: float32 ``[L, M]``, of the action under the policy that acted.
        value: float32 ``[L, M]``, estimated by the policy that acted.
        advantage: float32 ``[L, M]``.
        returns: float32 ``[L, M]``, targets of the values.
        mask: bool ``[L, M, num_choices]``, legal choices; None if all are legal.
        begins: bool ``[L, M]``, True at the first step of an episode; None without recurrence.
        memory: float32 ``[M, memory_width]``, recurrent state before the first step; None without
            recurrence.
        valid: bool ``[L, M]``, True for the steps to learn from; None means all.
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
        """L, the number of steps of a piece."""
        return len(self.action)

    @property
    def num_pieces(self) -> int:
        """M, the number of pieces."""
        return self.action.shape[1]

    def take(self, index: Any) -> Minibatch:
        """Return a batch of the pieces ``index``, int64 ``[m]``."""
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
        return Minibatch(**found)

    def steps(self) -> Minibatch:
        """Return the batch with one row per valid step in all columns after ``obs``."""
        valid = self.valid

        def rows(column: Any) -> Any:
            return column.flatten(0, 1) if valid is None else column[valid]

        names = ("action", "log_prob", "value", "advantage", "returns")
        columns = {name: rows(getattr(self, name)) for name in names}
        return replace(self, mask=None if self.mask is None else rows(self.mask), **columns)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outputs of a network for N steps.

    Attributes:
        log_prob: float32 ``[N]``, of the taken actions.
        entropy: float32 ``[N]``, of the action distributions.
        value: float32 ``[N]``, estimated values.
    """

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


def evaluate(place: Placement[PolicyModule], batch: Minibatch) -> Evaluation:
    """Run a policy on a minibatch that `Minibatch.steps` returned."""
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
) -> Minibatch:
    """Estimate advantages and cut a rollout into pieces. Drop pieces without valid steps.

    A piece begins with the recurrent state from collection, so gradients flow back through at most
    ``length`` steps.

    Args:
        rollout: The rollout, with its first recurrent state if the policy is recurrent.
        reward: float32 ``[T, B]``, the rewards of the rollout, scaled or not.
        place: The policy, with the weights that acted.
        gamma: Discount.
        gae_lambda: Lambda of generalised advantage estimation.
        length: L for a recurrent policy; divides T. Other policies use 1.
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
        """Reshape ``[T * B, ...]`` to pieces ``[L, T / L * B, ...]``."""
        pieces = x.reshape(num_steps // length, length, num_envs, *x.shape[1:]).swapaxes(0, 1)
        return pieces.reshape(length, num_steps // length * num_envs, *x.shape[1:])

    columns = rollout.log_prob, rollout.value, advantage, returns, rollout.valid
    log_prob, value, *targets, valid = [cut(place.tensors(x.reshape(-1))) for x in columns]
    mask = legal_choices(rollout, place)
    batch = Minibatch(
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
    """Return the normalised observations of a rollout as tensors ``[T * B, *obs]``."""
    return place.module.normalize(place.tensors(merge_axes(rollout.obs)))


def actions_of(rollout: Rollout, place: Placement[PolicyModule]) -> Tensor:
    """Return the actions of a rollout as rows of the action layout, ``[T * B, K]``."""
    rows: Tensor = place.tensors(place.module.layout.unpack(merge_axes(rollout.action)))
    return rows


def legal_choices(rollout: Rollout, place: Placement[PolicyModule]) -> Tensor | None:
    """Return the action masks of a rollout, bool ``[T * B, num_choices]``; None without masks."""
    if not place.module.has_action_mask:
        return None
    found: Tensor = place.tensors(action_masks(merge_axes(rollout.obs)))
    return found


class Recall(NamedTuple):
    """Recurrent states of a policy during a rollout.

    Attributes:
        first: float32 ``[B, memory_width]``, state before the first step.
        after: float32 ``[T, B, memory_width]``, state after every step.
        begins: bool ``[T, B]``, True where an episode begins within the rollout.
        final_value: float32 ``[T, B]``, values of the true final observations of truncated
            episodes; zero elsewhere.
    """

    first: Tensor
    after: Tensor
    begins: Tensor
    final_value: Any


@torch.no_grad()
def recalled(rollout: Rollout, obs: Tree, place: Placement[PolicyModule]) -> Recall:
    """Compute the recurrent states of a rollout again, with the weights that acted."""
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
    """Run a recurrent policy on a rollout, from its first recurrent state.

    Returns:
        The result of `PolicyModule.unroll` with leading axes ``[T, B]``; the state before the first
        step, float32 ``[B, memory_width]``; and where episodes begin within the rollout, bool
        ``[T, B]``.
    """
    assert rollout.memory is not None, "a recurrent policy records its state"
    begins = np.zeros_like(rollout.done)
    begins[1:] = rollout.done[:-1]
    first, starts = place.tensors(rollout.memory), place.tensors(begins)
    steps = tree_map(lambda x: x.reshape(*begins.shape, *x.shape[1:]), obs)
    return place.module.unroll(steps, starts, first), first, starts
