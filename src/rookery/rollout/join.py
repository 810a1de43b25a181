"""Joining of rollouts of different envs over the same number of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, stack, take, tree_map
from rookery.rollout.rollout import Rollout

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
    for field in fields(Rollout):
        tree = getattr(rollout, field.name)
        is_end = field.name in ("final_obs", "final_index", "final_info")
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
