"""Rollouts of different envs over the same number of steps, put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.rollout.rollout import Rollout
from rookery.rollout.tree import Tree, take, tree_map

# Of shape [B, ...]; others are [T, B].
_PER_ENV = ("last_obs", "last_value", "policy_version", "env_ids", "memory")
_FINALS = ("final_obs", "final_index")

# First column, final_index and final_obs of a part.
Finals = tuple[int, npt.NDArray[np.int64], Tree]


def side_by_side(rollouts: Sequence[Rollout]) -> Rollout:
    """Join rollouts ``[T, B_i, ...]`` to one ``[T, sum(B_i), ...]``; the arrays are fresh."""
    joined: dict[str, Any] = {
        field.name: _concatenated(
            [getattr(rollout, field.name) for rollout in rollouts], int(field.name not in _PER_ENV)
        )
        for field in fields(Rollout)
        if field.name not in _FINALS
    }
    offsets = np.cumsum([0] + [rollout.num_envs for rollout in rollouts])
    index, obs = merge_finals(
        [
            (int(offset), rollout.final_index, rollout.final_obs)
            for offset, rollout in zip(offsets, rollouts, strict=False)
        ]
    )
    return Rollout(final_index=index, final_obs=obs, **joined)


def merge_finals(parts: Sequence[Finals]) -> tuple[npt.NDArray[np.int64], Tree]:
    """Join final observations, in order of time, then of columns.

    Returns:
        ``final_index``, int64 ``[K, 2]``, and ``final_obs``, ``[K, ...]``; see `Rollout`.
    """
    _, no_index, no_obs = parts[0]
    parts = [part for part in parts if len(part[1])]
    if not parts:  # as in most rollouts of a few steps
        return no_index, no_obs
    index = np.concatenate([part_index + [0, first] for first, part_index, _ in parts])
    obs = _concatenated([part_obs for _, _, part_obs in parts], 0)
    order = np.lexsort((index[:, 1], index[:, 0]))
    return index[order], take(obs, order)


def _concatenated(trees: Sequence[Tree], axis: int) -> Tree:
    if trees[0] is None:  # the memory of policies that have none
        return None
    return tree_map(lambda *arrays: np.concatenate(arrays, axis), *trees)
