"""BatchArrays: every array that n envs and their caller share, as one object.

The same arrays serve an env batch in this process (over plain memory) and one in a worker (over a
shared block), which is why all carriers can share one stepping code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from rookery.env.spaces import Array, Leaf, batched, flattened, leaves
from rookery.errors import SpaceError

_WORD_BYTES = 8


@dataclass(frozen=True)
class BatchSpaces:
    """The spaces of one env and how many envs and buffers there are.

    Two buffers let a caller read the arrays of one step while the next is being written.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_buffers: int

    def columns(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Name -> (shape, dtype) of every array needed."""
        n = self.num_envs
        columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for b in range(self.num_buffers):
            for i, leaf in enumerate(leaves(self.observation_space, "observation")):
                columns[f"obs{b}.{i}"] = ((n, *leaf.shape), leaf.dtype)
            columns[f"reward{b}"] = ((n,), np.dtype(np.float64))
            columns[f"terminated{b}"] = ((n,), np.dtype(np.bool_))
            columns[f"truncated{b}"] = ((n,), np.dtype(np.bool_))
        action_leaves = leaves(self.action_space, "action")
        for i, leaf in enumerate(action_leaves):
            columns[f"action.{i}"] = ((n * _action_row_bytes(leaf),), np.dtype(np.uint8))
        columns["reset_at"] = ((n,), np.dtype(np.int64))
        columns["action_dtype"] = ((max(len(action_leaves), 1),), np.dtype(np.int64))
        return columns


def _action_row_bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape) * max(leaf.dtype.itemsize, _WORD_BYTES)


class ActionColumn:
    """Actions of one leaf, kept in whatever number type the caller gave them.

    A float64 action for a float32 space reaches the env as float64, exactly as a plain loop or
    Gymnasium's own vector envs would hand it over; so trajectories do not depend on the carrier.

    Args:
        leaf: the part of the action space.
        raw: uint8 ``[n * row_bytes]``, room for 8-byte elements.
        dtype_code: int64 ``[1]``, where the number type is noted for the reader.
    """

    def __init__(self, leaf: Leaf, raw: Array, dtype_code: Array, num_envs: int) -> None:
        self.path = leaf.path
        self._dtype = leaf.dtype
        self._dtype_code = dtype_code.data
        self._shape = (num_envs, *leaf.shape)
        self._views: dict[Any, Array] = {}  # by dtype for the writer, by its code for the reader
        count = math.prod(self._shape)
        fitting = [np.dtype(c) for c in "?bhilqBHILQefd"]
        for dtype in {leaf.dtype, *fitting}:
            view = raw[: count * dtype.itemsize].view(dtype).reshape(self._shape)
            self._views[dtype] = self._views[dtype.num] = view

    def write(self, actions: Any) -> None:
        """Note the actions of all envs; anything with shape ``[n, *leaf.shape]``.

        Raises:
            SpaceError: when the shape differs or the dtype cannot stand for the space's.
        """
        if type(actions) is not np.ndarray:
            actions = np.asarray(actions)
        if actions.shape != self._shape:
            raise SpaceError(f"{self.path} has shape {actions.shape}, expected {self._shape}")
        view = self._views.get(actions.dtype)
        if view is None:
            view = self._views[self._dtype]
            if not np.can_cast(actions.dtype, self._dtype, "same_kind"):
                raise SpaceError(f"{self.path} has dtype {actions.dtype}, expected {self._dtype}")
        view[...] = actions
        self._dtype_code[0] = view.dtype.num

    def read(self, first: int, last: int) -> Array:
        """A copy of rows ``first`` to ``last``, which an env may keep."""
        return self._views[self._dtype_code[0]][first:last].copy()


class BatchArrays:
    """The arrays of ``spaces.num_envs`` envs.

    Args:
        spaces: what they hold.
        views: an array for each of ``spaces.columns()``.

    Attributes:
        obs: per buffer, the columns ``[n, *shape]`` of the observation's leaves.
        batched_obs: per buffer, the same arrays in the batched form of the observation space.
        reward: per buffer, float64 ``[n]``.
        terminated: per buffer, bool ``[n]``.
        truncated: per buffer, bool ``[n]``.
        reset_at: int64 ``[n]``, how many steps each env's batch had made at its last reset.
    """

    def __init__(self, spaces: BatchSpaces, views: Mapping[str, Array]) -> None:
        self.spaces = spaces
        buffers = range(spaces.num_buffers)
        num_leaves = len(leaves(spaces.observation_space, "observation"))
        self.obs = [[views[f"obs{b}.{i}"] for i in range(num_leaves)] for b in buffers]
        self.batched_obs = [batched(spaces.observation_space, iter(self.obs[b])) for b in buffers]
        self.reward = [views[f"reward{b}"] for b in buffers]
        self.terminated = [views[f"terminated{b}"] for b in buffers]
        self.truncated = [views[f"truncated{b}"] for b in buffers]
        self.reset_at = views["reset_at"]
        codes = views["action_dtype"]
        self.actions = [
            ActionColumn(leaf, views[f"action.{i}"], codes[i : i + 1], spaces.num_envs)
            for i, leaf in enumerate(leaves(spaces.action_space, "action"))
        ]
        self._only_action = self.actions[0] if _is_leaf(spaces.action_space) else None

    @classmethod
    def in_memory(cls, spaces: BatchSpaces) -> BatchArrays:
        """Arrays of this process alone."""
        return cls(
            spaces, {n: np.zeros(shape, dtype) for n, (shape, dtype) in spaces.columns().items()}
        )

    def write_actions(self, actions: Any) -> None:
        """Note a batch of actions, in the batched form of the action space."""
        if self._only_action is not None:
            self._only_action.write(actions)
            return
        parts = flattened(self.spaces.action_space, actions, "action")
        for column, part in zip(self.actions, parts, strict=True):
            column.write(part)

    def read_actions(self, first: int, last: int) -> Iterator[Any]:
        """The actions of envs ``first`` to ``last``, one by one, as a plain loop would see them."""
        if self._only_action is not None:
            return iter(self._only_action.read(first, last))
        columns = iter([column.read(first, last) for column in self.actions])
        return _rows(self.spaces.action_space, batched(self.spaces.action_space, columns))

    def copy_rows(self, env_ids: Sequence[int], source: int, target: int) -> list[Any]:
        """Copy the observations of some envs from one buffer to another; return them, unbatched."""
        rows = list(env_ids)
        for new, old in zip(self.obs[target], self.obs[source], strict=True):
            new[rows] = old[rows]
        copies = iter([column[rows] for column in self.obs[source]])
        space = self.spaces.observation_space
        return list(_rows(space, batched(space, copies)))

    def close_rows(self, env_ids: Sequence[int], buffer: int) -> None:
        """Mark transitions as cut short: no reward, not terminated, truncated."""
        rows = list(env_ids)
        self.reward[buffer][rows] = 0.0
        self.terminated[buffer][rows] = False
        self.truncated[buffer][rows] = True

    def ended(self, env_ids: Sequence[int], buffer: int) -> tuple[int, ...]:
        """Those of some envs whose episode ended in the step that wrote a buffer."""
        flags = self.terminated[buffer] | self.truncated[buffer]
        return tuple(env_id for env_id in env_ids if flags[env_id])


def _is_leaf(space: Space[Any]) -> bool:
    return [leaf.path for leaf in leaves(space, "action")] == ["action"]


def _rows(space: Space[Any], batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict):
        rows = {key: _rows(space, part) for key, part in batch.items()}
        return iter([dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)])
    if isinstance(batch, tuple):
        return zip(*[_rows(space, part) for part in batch], strict=True)
    return iter(batch)
