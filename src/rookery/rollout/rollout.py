"""Experience of ``B`` envs in ``T`` steps as arrays ``[T, B, ...]``, and joining of rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, stack, take, tree_map, zeros_rows
from rookery.errors import MissingExtra


@dataclass(slots=True)
class Rollout:
    """Experience of B envs over T steps.

    Row ``[t, b]`` holds the observation ``obs`` of env b, the ``action`` taken, and the resulting
    ``reward`` and flags. A column holds consecutive episodes of one env.

    Attributes:
        obs: array ``[T, B, *obs]`` in the env's own dtype, or dicts and tuples of such arrays.
        action: ``[T, B, *action]``, as sampled by the policy, before clipping to the env's bounds;
            for a Dict or Tuple space ``[T, B, K]``, its parts concatenated.
        reward: float32 ``[T, B]``, as returned by the env.
        terminated: bool ``[T, B]``.
        truncated: bool ``[T, B]``.
        valid: bool ``[T, B]``. False marks rows that must not be learned from: the step that
            only resets an env in next_step autoreset mode, and transitions cut off by a fault.
        log_prob: float32 ``[T, B]``, log probability of ``action`` when it was sampled.
        value: float32 ``[T, B]``, the policy's value of ``obs``.
        last_obs: the observations after the last step, ``[B, *obs]``.
        last_value: float32 ``[B]``, the value of ``last_obs``.
        final_obs: ``[K, *obs]``, the true last observations of the K episodes that ended.
        final_index: int64 ``[K, 2]``, the ``(t, b)`` of each of them, in order of t.
        final_info: maps each of the collector's ``info_keys`` to float64 ``[K]``: numbers from the
            infos of the K episode ends, NaN if an info has no such number.
        final_value: float32 ``[T, B]``, the value of the true final observation where an
            episode was truncated; zero elsewhere, and zero everywhere for a recurrent policy.
        policy_version: int64 ``[B]``, the version of the weights that acted.
        memory: float32 ``[B, M]``, memory of a recurrent policy before the first row; None for
            other policies.
        env_ids: int64 ``[B]``, index of the env of each column.
        after_reset: bool ``[B]``, True if the env was reset from outside before the first row. The
            column then does not continue the last episode of the previous rollout.
    """

    obs: Tree
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    valid: npt.NDArray[np.bool_]
    log_prob: npt.NDArray[np.float32]
    value: npt.NDArray[np.float32]
    last_obs: Tree
    last_value: npt.NDArray[np.float32]
    final_obs: Tree
    final_index: npt.NDArray[np.int64]
    final_value: npt.NDArray[np.float32]
    policy_version: npt.NDArray[np.int64]
    env_ids: npt.NDArray[np.int64]
    after_reset: npt.NDArray[np.bool_]
    memory: npt.NDArray[np.float32] | None = None
    final_info: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    @classmethod
    def allocate(cls, num_steps: int, obs: Tree, action: npt.NDArray[Any]) -> Rollout:
        """Allocate arrays for ``num_steps`` steps of envs with such ``obs`` and ``action``.

        Args:
            num_steps: steps of every env, ``T``.
            obs: one batch of observations ``[B, *obs]``; only shapes and dtypes are read.
            action: one batch of actions ``[B, *action]``; only shape and dtype are read.
        """
        num_envs = len(action)
        shape = (num_steps, num_envs)
        return cls(
            obs=zeros_rows(num_steps, obs),
            action=zeros_rows(num_steps, action),
            reward=np.zeros(shape, np.float32),
            terminated=np.zeros(shape, np.bool_),
            truncated=np.zeros(shape, np.bool_),
            valid=np.ones(shape, np.bool_),
            log_prob=np.zeros(shape, np.float32),
            value=np.zeros(shape, np.float32),
            last_obs=obs,
            last_value=np.zeros(num_envs, np.float32),
            final_obs=stack([], obs),
            final_index=np.zeros((0, 2), np.int64),
            final_value=np.zeros(shape, np.float32),
            policy_version=np.zeros(num_envs, np.int64),
            env_ids=np.arange(num_envs),
            after_reset=np.zeros(num_envs, np.bool_),
        )

    @property
    def num_steps(self) -> int:
        """Number of steps of every env, T."""
        return len(self.reward)

    @property
    def num_envs(self) -> int:
        """Number of envs, B."""
        return len(self.policy_version)

    @property
    def num_transitions(self) -> int:
        """Number of env steps, valid or not, ``T * B``."""
        return self.num_steps * self.num_envs

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Mask bool ``[T, B]`` of transitions that were terminated or truncated."""
        return self.terminated | self.truncated

    def cut_off(self) -> tuple[Tree, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the episodes that were truncated but not terminated.

        Returns:
            Their true final observations, ``[C, *obs]``, and their t and b, int64 ``[C]`` each.
        """
        t, b = self.final_index.T
        cut = self.truncated[t, b] & ~self.terminated[t, b]
        return take(self.final_obs, cut), t[cut], b[cut]

    def torch(self) -> Rollout:
        """Return the rollout with tensors that share the memory of its arrays.

        Raises:
            MissingExtra: torch is not installed.
        """
        try:
            import torch
        except ImportError as error:
            raise MissingExtra("tensors need torch: pip install 'rookery[train]'") from error
        tensors: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            tensors[each.name] = None if value is None else tree_map(torch.from_numpy, value)
        return Rollout(**tensors)


# Of shape [B, ...]; others are [T, B].
_PER_ENV = ("last_obs", "last_value", "policy_version", "env_ids", "memory", "after_reset")


class Finals(NamedTuple):
    """The ends of K episodes: ``final_index``, ``final_obs`` and ``final_info`` of a `Rollout`."""

    index: npt.NDArray[np.int64]  # type: ignore[assignment]
    obs: Tree
    info: dict[str, npt.NDArray[np.float64]]

    @classmethod
    def of(cls, ends: Sequence[tuple[int, int, Tree, Mapping[str, float]]], like: Tree) -> Finals:
        """Combine single episode ends.

        Args:
            ends: row, column, observation and numbers of each end.
            like: a batch of observations, which gives the shapes if ``ends`` is empty.
        """
        index = np.array([(t, b) for t, b, _, _ in ends], np.int64).reshape(-1, 2)
        names = ends[0][3] if ends else ()
        info = {name: np.array([end[3][name] for end in ends], np.float64) for name in names}
        return cls(index, stack([obs for _, _, obs, _ in ends], like), info)

    def put_into(self, rollout: Rollout) -> None:
        """Store the ends in a rollout."""
        rollout.final_index, rollout.final_obs, rollout.final_info = self


def numbers_of(info: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Return the numbers under ``keys`` in the info of one env; a missing number becomes NaN."""
    return {key: _number(info.get(key)) for key in keys}


def _number(value: Any) -> float:
    is_number = isinstance(value, (bool, int, float, np.generic, np.ndarray))
    if not is_number or np.size(value) != 1 or np.asarray(value).dtype.kind not in "biuf":
        return float("nan")
    return float(np.asarray(value).reshape(()))


def side_by_side(rollouts: Sequence[Rollout]) -> Rollout:
    """Join rollouts ``[T, B_i, ...]`` to one ``[T, sum(B_i), ...]`` with new arrays."""
    joined: dict[str, Any] = {
        field.name: _concatenated(
            [getattr(rollout, field.name) for rollout in rollouts], int(field.name not in _PER_ENV)
        )
        for field in fields(Rollout)
        if not field.name.startswith("final_") or field.name == "final_value"
    }
    offsets = np.cumsum([0] + [rollout.num_envs for rollout in rollouts]).tolist()
    parts = [Finals(each.final_index, each.final_obs, each.final_info) for each in rollouts]
    index, obs, info = merge_finals(list(zip(offsets, parts, strict=False)))
    return Rollout(final_index=index, final_obs=obs, final_info=info, **joined)


def size_of(rollout: Rollout) -> int:
    """Return the bytes of a rollout's arrays, without those of the episode ends."""
    sizes: list[int] = []
    for each in fields(Rollout):
        tree = getattr(rollout, each.name)
        is_end = each.name in ("final_obs", "final_index", "final_info")
        if tree is not None and not is_end:
            tree_map(lambda array: sizes.append(array.nbytes), tree)
    return sum(sizes)


def merge_finals(parts: Sequence[tuple[int, Finals]]) -> Finals:
    """Join episode ends, ordered by row, then by column.

    Args:
        parts: the offset of each part's columns, and its ends.
    """
    some = [(first, finals) for first, finals in parts if len(finals.index)]
    if not some:  # as in most rollouts of a few steps
        return parts[0][1]
    index = np.concatenate([finals.index + [0, first] for first, finals in some])
    order = np.lexsort((index[:, 1], index[:, 0]))
    obs, info = (_concatenated([finals[place] for _, finals in some], 0) for place in (1, 2))
    return Finals(index[order], take(obs, order), take(info, order))


def _concatenated(trees: Sequence[Tree], axis: int) -> Tree:
    if trees[0] is None:  # the memory of policies that are not recurrent
        return None
    return tree_map(lambda *arrays: np.concatenate(arrays, axis), *trees)
