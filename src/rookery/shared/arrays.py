"""The arrays that n envs and their caller share: `BatchArrays`.

An env batch in this process uses them over plain memory, and one in a worker over a shared block.
Thus all backends share one stepping code. In a step, the caller writes actions with
`BatchArrays.write_actions` and copies results out. The worker reads actions with
`BatchArrays.read_actions` and writes results through the writers of `rookery.shared.spaces`.

*Free values* are values without a fixed shape, such as texts and graphs. They have no array; they
are in the rows of `rookery.shared.row_buffer`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import GraphInstance

from rookery.errors import SpaceTypeError
from rookery.shared import stopwatch
from rookery.shared.block import ColumnSizes, zeros
from rookery.shared.freeform import FreeForm
from rookery.shared.row_buffer import FreeActions, RowBuffer, RowShape
from rookery.shared.spaces import (
    Array,
    Assembler,
    FreeLeaf,
    Leaf,
    Writer,
    as_array,
    batch_mismatch,
    batched,
    fixed_leaves,
    flattened,
    free_leaves,
    leaves,
    rows,
)

_LARGEST_BYTES = 8  # of a number that a caller may pass as an action
_UNCHANGEABLE = frozenset({str, int, float, bool, bytes, type(None)})
_ACTION = "action"  # root of paths in error messages about actions


@dataclass(frozen=True)
class BatchSpaces:
    """The spaces of one env, and the numbers of envs and buffers.

    With two buffers a caller can read the arrays of one step while the next step is written.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_buffers: int

    @property
    def row_shape(self) -> RowShape:
        """Initial shape of a row of the row buffer."""
        spaces = self.observation_space, self.action_space
        if any(free_leaves(space, "") for space in spaces):
            return RowShape(tail_bytes=4096, action_bytes=4096)
        return RowShape()

    def columns(self) -> ColumnSizes:
        """Return name -> (shape, dtype) of every array that is needed."""
        n = self.num_envs
        columns: ColumnSizes = {}
        for b in range(self.num_buffers):
            for i, leaf in enumerate(fixed_leaves(self.observation_space, "")):
                columns[f"obs{b}.{i}"] = ((n, *leaf.shape), leaf.dtype)
            columns[f"reward{b}"] = ((n,), np.dtype(np.float64))
            columns[f"terminated{b}"] = ((n,), np.dtype(np.bool_))
            columns[f"truncated{b}"] = ((n,), np.dtype(np.bool_))
        for i, leaf in enumerate(fixed_leaves(self.action_space, _ACTION)):
            row_bytes = math.prod(leaf.shape) * max(leaf.dtype.itemsize, _LARGEST_BYTES)
            columns[f"action.{i}"] = ((n, row_bytes), np.dtype(np.uint8))
            columns[f"action_dtype.{i}"] = ((n,), np.dtype(np.int64))
        columns["reset_at"] = ((n,), np.dtype(np.int64))
        columns |= stopwatch.columns(n)
        return {**columns, **self.row_columns(self.row_shape)}

    def row_columns(self, shape: RowShape) -> ColumnSizes:
        """Return name -> (shape, dtype) of the arrays of a row buffer with rows of this shape."""
        return shape.columns(self.num_envs, self.num_buffers)


def written_by_caller(name: str) -> bool:
    """Return True if the caller writes this column, which holds for the columns of actions."""
    return name.startswith("action")


def written_by_envs(name: str, buffer: int) -> bool:
    """Return True if envs write this column with every result that goes into `buffer`.

    The columns of the row buffer are not included.
    """
    return name.startswith(f"obs{buffer}.") or name in (
        f"reward{buffer}",
        f"terminated{buffer}",
        f"truncated{buffer}",
        "reset_at",
    )


class ActionColumn:
    """The actions of one leaf, in the number type that the caller passed.

    A float64 action for a float32 space reaches the env as float64, as in a plain loop and in
    Gymnasium's vector envs. Therefore trajectories do not depend on the backend.

    Args:
        leaf: part of the action space.
        raw: uint8 ``[n, row_bytes]``, with room for 8-byte elements.
        dtype_codes: int64 ``[n]``, the numpy type number of each env's action, for the reader.
    """

    def __init__(self, leaf: Leaf, raw: Array, dtype_codes: Array) -> None:
        self.path = leaf.path
        self._dtype = leaf.dtype
        self._dtype_codes = dtype_codes
        self._code = -1  # dtype code of all envs if the last write was for all envs, else -1
        self._shape = (len(raw), *leaf.shape)
        self._views: dict[Any, Array] = {}  # by dtype for the writer, by dtype code for the reader
        count = math.prod(leaf.shape)
        fitting = [np.dtype(c) for c in "?bhilqBHILQefd"]
        for dtype in {leaf.dtype, *fitting}:
            view = raw[:, : count * dtype.itemsize].view(dtype).reshape(self._shape)
            self._views[dtype] = self._views[dtype.num] = view

    def write(self, actions: Any, env_ids: Any = ...) -> None:
        """Write the actions of all envs, or of ``env_ids``.

        Args:
            actions: anything that becomes an array with shape ``[n, *shape]``.
            env_ids: int64 ``[k]``, or ``...`` for all envs.

        Raises:
            SpaceError: the shape differs, or the dtype cannot be cast to the dtype of the space.
        """
        if type(actions) is not np.ndarray:
            actions = as_array(actions, self.path)
        expected = self._shape if env_ids is ... else (len(env_ids), *self._shape[1:])
        if actions.shape != expected:
            raise batch_mismatch(actions, expected, self.path)
        view = self._views.get(actions.dtype)
        if view is None:
            view = self._views[self._dtype]
            if not np.can_cast(actions.dtype, self._dtype, "same_kind"):
                raise SpaceTypeError(
                    f"{self.path} has dtype {actions.dtype}, expected {self._dtype}"
                )
        view[env_ids] = actions
        if env_ids is not ... or view.dtype.num != self._code:
            self._dtype_codes[env_ids] = view.dtype.num
            self._code = view.dtype.num if env_ids is ... else -1

    def read(self, env_ids: Sequence[int]) -> Array:
        """Return a copy of rows that were written by one call. Envs may keep it."""
        view = self._views[self._dtype_codes[env_ids[0]]]
        if type(env_ids) is range:
            return view[env_ids.start : env_ids.stop].copy()
        return view[list(env_ids)]


class BatchArrays:
    """The arrays of ``spaces.num_envs`` envs.

    Args:
        spaces: spaces and sizes of the arrays.
        views: an array for each of ``spaces.columns()``.
        keeps_objects: True if envs and caller use this very object in one process. Free values are
            then not encoded.

    Attributes:
        obs: per buffer, one column ``[n, *shape]`` for each leaf of the observation with a fixed
            shape.
        batched_obs: per buffer, the same arrays in the batched form of the observation space. None
            if the observation has free values.
        free_obs: per free leaf of the observation, a list with one value per env. These are the
            values that the caller read last, or with ``keeps_objects`` the values that the envs
            wrote last.
        free_obs_forms: per free leaf of the observation, the encoding of its values.
        reward: per buffer, float64 ``[n]``.
        terminated: per buffer, bool ``[n]``.
        truncated: per buffer, bool ``[n]``.
        reset_at: int64 ``[n]``, number of steps that the batch of each env had made at the env's
            last reset.
        counters: counters and times of the envs.
        row_buffer: everything that has no column.
    """

    def __init__(
        self, spaces: BatchSpaces, views: Mapping[str, Array], keeps_objects: bool = False
    ) -> None:
        self.spaces = spaces
        self.keeps_objects = keeps_objects
        buffers = range(spaces.num_buffers)
        num_fixed = len(fixed_leaves(spaces.observation_space, ""))
        free = free_leaves(spaces.observation_space, "")
        self.obs = [[views[f"obs{b}.{i}"] for i in range(num_fixed)] for b in buffers]
        self.free_obs: list[list[Any]] = [[None] * spaces.num_envs for _ in free]
        self.free_obs_forms = [FreeForm(leaf.space) for leaf in free]
        self.batched_obs = [
            None if free else batched(spaces.observation_space, iter(self.obs[b])) for b in buffers
        ]
        self.reward = [views[f"reward{b}"] for b in buffers]
        self.terminated = [views[f"terminated{b}"] for b in buffers]
        self.truncated = [views[f"truncated{b}"] for b in buffers]
        self.reset_at = views["reset_at"]
        self.counters = stopwatch.EnvCounters(views)
        self.row_buffer = RowBuffer(spaces.num_buffers, spaces.row_shape, views)
        self.actions = [
            ActionColumn(leaf, views[f"action.{i}"], views[f"action_dtype.{i}"])
            for i, leaf in enumerate(fixed_leaves(spaces.action_space, _ACTION))
        ]
        free = free_leaves(spaces.action_space, _ACTION)
        self._observation_of = Assembler(spaces.observation_space)
        self._action_of = Assembler(spaces.action_space)
        self._are_free = [
            isinstance(leaf, FreeLeaf) for leaf in leaves(spaces.action_space, _ACTION)
        ]
        self._free_actions = (
            FreeActions(self.row_buffer, free, spaces.num_envs, keeps_objects) if free else None
        )
        is_leaf = [leaf.path for leaf in fixed_leaves(spaces.action_space, _ACTION)] == [_ACTION]
        self._only_action = self.actions[0] if is_leaf else None

    @classmethod
    def in_memory(cls, spaces: BatchSpaces, keeps_objects: bool = True) -> BatchArrays:
        """Return arrays over plain memory of this process."""
        return cls(spaces, zeros(spaces.columns()), keeps_objects)

    def free_writers(self, buffer: int, env_id: int, encoded: list[bytes]) -> Iterator[Writer]:
        """Return one writer for each free leaf of an env's observation, in the order of the leaves.

        Args:
            buffer: buffer that the observation is written into.
            env_id: index of the env.
            encoded: list that receives the encoded values. Unused with ``keeps_objects``.
        """
        if self.keeps_objects:
            return iter([partial(values.__setitem__, env_id) for values in self.free_obs])
        return iter([_encoder(form, encoded) for form in self.free_obs_forms])

    def enlarge_rows_in_memory(self, shape: RowShape) -> None:
        """Replace the row buffer by a larger one over plain memory of this process."""
        columns = self.spaces.row_columns(shape)
        self.row_buffer.enlarge(shape, zeros(columns))

    def observations(
        self, buffer: int, env_ids: Array | None = None, copies_objects: bool = True
    ) -> Any:
        """Return batched copies of the observations of some envs, with the free values read last.

        Args:
            buffer: buffer to read.
            env_ids: int64 ``[k]``; None means all envs.
            copies_objects: False returns the envs' own free values, if these are not encoded.
        """
        columns = self.obs[buffer]
        if env_ids is None:
            fixed = [column.copy() for column in columns]
            free = [tuple(values) for values in self.free_obs]
        else:
            fixed = [column[env_ids] for column in columns]
            free = [tuple(values[i] for i in env_ids) for values in self.free_obs]
        if self.keeps_objects and copies_objects:
            free = [tuple([_copied(value) for value in values]) for values in free]
        return self._observation_of(fixed, free)

    def pickle_main_by_value(self) -> None:
        """Write all later actions for readers that have not run the caller's script."""
        if self._free_actions is not None:
            self._free_actions.pickle_main_by_value()

    def write_actions(self, actions: Any, env_ids: Any = ...) -> None:
        """Write a batch of actions, in the batched form of the action space.

        Args:
            actions: one action for each env, or for each of ``env_ids``.
            env_ids: int64 ``[k]``, or ``...`` for all envs.

        Raises:
            SpaceError: the actions do not fit the space.
            RowTooSmall: the free values of the actions need larger rows.
        """
        if self._only_action is not None:
            self._only_action.write(actions, env_ids)
            return
        space = self.spaces.action_space
        parts = flattened(space, actions, _ACTION)
        if self._free_actions is not None:
            free = [part for part, is_free in zip(parts, self._are_free, strict=True) if is_free]
            parts = [
                part for part, is_free in zip(parts, self._are_free, strict=True) if not is_free
            ]
            ids = range(self.spaces.num_envs) if env_ids is ... else env_ids.tolist()
            self._free_actions.write(free, ids)
        for column, part in zip(self.actions, parts, strict=True):
            column.write(part, env_ids)

    def read_actions(self, env_ids: Sequence[int]) -> Iterator[Any]:
        """Return the actions of some envs one by one, as a plain loop would pass them."""
        if self._only_action is not None:
            return iter(self._only_action.read(env_ids))
        return rows(self.spaces.action_space, self.read_action_batch(env_ids), len(env_ids))

    def read_action_batch(self, env_ids: Sequence[int]) -> Any:
        """Return a copy of the actions of some envs in the batched form of the action space."""
        fixed = [column.read(env_ids) for column in self.actions]
        free = self._free_actions.read(env_ids) if self._free_actions is not None else []
        return self._action_of(fixed, free)

    def copy_rows(self, env_ids: Any, source: int, target: int) -> None:
        """Copy the observation columns of some envs from one buffer to another."""
        ids = list(env_ids)
        for new, old in zip(self.obs[target], self.obs[source], strict=True):
            new[ids] = old[ids]

    def row(self, env_id: int, buffer: int) -> Any:
        """Return a copy of the observation of one env, unbatched."""
        ids = np.array([env_id])
        return next(rows(self.spaces.observation_space, self.observations(buffer, ids), 1))

    def close_rows(self, env_ids: Sequence[int], buffer: int) -> None:
        """Mark transitions as cut short: reward 0, not terminated, truncated."""
        ids = list(env_ids)
        self.reward[buffer][ids] = 0.0
        self.terminated[buffer][ids] = False
        self.truncated[buffer][ids] = True


def _copied(value: Any) -> Any:
    """Copy a value like ``deepcopy``, but several times faster for common types."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is np.ndarray and value.dtype != object:
        return value.copy()
    if kind is tuple:
        return tuple([_copied(item) for item in value])
    if kind is GraphInstance:
        return GraphInstance(*[_copied(item) for item in value])
    return deepcopy(value)


def _encoder(form: FreeForm, encoded: list[bytes]) -> Writer:
    return lambda value: encoded.append(form.encode(value))
