"""BatchArrays: every array that n envs and their caller share, as one object.

The same arrays serve an env batch in this process (over plain memory) and one in a worker (over a
shared block), which is why all backends can share one stepping code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.spaces import GraphInstance

from rookery.shared import stopwatch
from rookery.shared.action_columns import ActionColumn, FreeActions, action_row_bytes
from rookery.shared.freeform import FreeForm
from rookery.shared.slab import Slab, SlabShape
from rookery.shared.spaces import (
    Array,
    FreeLeaf,
    Leaf,
    Writer,
    batched,
    flattened,
    leaves,
    rows,
)

_UNCHANGEABLE = frozenset({str, int, float, bool, bytes, type(None)})
_ACTION = "action"  # the root of paths in messages about actions


@dataclass(frozen=True)
class BatchSpaces:
    """The spaces of one env and how many envs and buffers there are.

    Two buffers let a caller read the arrays of one step while the next is being written.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_buffers: int

    @property
    def slab_shape(self) -> SlabShape:
        """The shape of the slab at first."""
        is_free = _free(self.observation_space) or _free(self.action_space)
        return SlabShape(tail_bytes=4096, action_bytes=4096) if is_free else SlabShape()

    def columns(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Name -> (shape, dtype) of every array needed."""
        n = self.num_envs
        columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for b in range(self.num_buffers):
            for i, leaf in enumerate(_fixed(self.observation_space)):
                columns[f"obs{b}.{i}"] = ((n, *leaf.shape), leaf.dtype)
            columns[f"reward{b}"] = ((n,), np.dtype(np.float64))
            columns[f"terminated{b}"] = ((n,), np.dtype(np.bool_))
            columns[f"truncated{b}"] = ((n,), np.dtype(np.bool_))
        for i, leaf in enumerate(_fixed(self.action_space)):
            columns[f"action.{i}"] = ((n, action_row_bytes(leaf)), np.dtype(np.uint8))
            columns[f"action_dtype.{i}"] = ((n,), np.dtype(np.int64))
        columns["reset_at"] = ((n,), np.dtype(np.int64))
        columns |= stopwatch.columns(n)
        return {**columns, **self.slab_columns(self.slab_shape)}

    def slab_columns(self, shape: SlabShape) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Name -> (shape, dtype) of the arrays of a slab of this shape."""
        return shape.columns(self.num_envs, self.num_buffers)


def written_by_caller(name: str) -> bool:
    """Whether the caller writes a column: those of actions."""
    return name.startswith("action")


def written_by_envs(name: str, buffer: int) -> bool:
    """Whether envs write a column, beside a slab, when their results go into a buffer."""
    return name.startswith(f"obs{buffer}.") or name in (
        f"reward{buffer}",
        f"terminated{buffer}",
        f"truncated{buffer}",
        "reset_at",
    )


def _fixed(space: Space[Any]) -> list[Leaf]:
    return [leaf for leaf in leaves(space, _ACTION) if isinstance(leaf, Leaf)]


def _free(space: Space[Any]) -> list[FreeLeaf]:
    return [leaf for leaf in leaves(space, _ACTION) if isinstance(leaf, FreeLeaf)]


class _Assembler:
    """Puts columns together in the batched form of a space.

    Args:
        space: of the values in them.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._are_free = [isinstance(leaf, FreeLeaf) for leaf in leaves(space, _ACTION)]
        self._is_leaf = not isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple))

    def __call__(self, fixed: Sequence[Any], free: Sequence[Any]) -> Any:
        """The batch, given the columns of the leaves with a fixed shape and of the others."""
        if self._is_leaf:
            return (free or fixed)[0]
        columns = iter(fixed), iter(free)
        return batched(self._space, iter([next(columns[is_free]) for is_free in self._are_free]))


class BatchArrays:
    """The arrays of ``spaces.num_envs`` envs.

    Args:
        spaces: what they hold.
        views: an array for each of ``spaces.columns()``.
        keeps_objects: whether envs and caller share this very object, in one process; free values
            then need no encoding.

    Attributes:
        obs: per buffer, the columns ``[n, *shape]`` of the observation's leaves, but the free ones.
        batched_obs: per buffer, the same arrays in the batched form of the observation space; None
            if there are free leaves.
        free_obs: per free leaf of the observation, a list of the values that the caller read last,
            or, where they need no encoding, that the envs wrote last.
        free_obs_forms: how each of these travels.
        reward: per buffer, float64 ``[n]``.
        terminated: per buffer, bool ``[n]``.
        truncated: per buffer, bool ``[n]``.
        reset_at: int64 ``[n]``, how many steps each env's batch had made at its last reset.
        watched: what was counted and timed of the envs.
        slab: what has no column of its own.
    """

    def __init__(
        self, spaces: BatchSpaces, views: Mapping[str, Array], keeps_objects: bool = False
    ) -> None:
        self.spaces = spaces
        self.keeps_objects = keeps_objects
        buffers = range(spaces.num_buffers)
        num_leaves, free = len(_fixed(spaces.observation_space)), _free(spaces.observation_space)
        self.obs = [[views[f"obs{b}.{i}"] for i in range(num_leaves)] for b in buffers]
        self.free_obs: list[list[Any]] = [[None] * spaces.num_envs for _ in free]
        self.free_obs_forms = [FreeForm(leaf.space) for leaf in free]
        self.batched_obs = [
            None if free else batched(spaces.observation_space, iter(self.obs[b])) for b in buffers
        ]
        self.reward = [views[f"reward{b}"] for b in buffers]
        self.terminated = [views[f"terminated{b}"] for b in buffers]
        self.truncated = [views[f"truncated{b}"] for b in buffers]
        self.reset_at = views["reset_at"]
        self.watched = stopwatch.WatchWords(views)
        self.slab = Slab(spaces.num_buffers, spaces.slab_shape, views)
        self.actions = [
            ActionColumn(leaf, views[f"action.{i}"], views[f"action_dtype.{i}"])
            for i, leaf in enumerate(_fixed(spaces.action_space))
        ]
        free = _free(spaces.action_space)
        self._observation_of = _Assembler(spaces.observation_space)
        self._action_of = _Assembler(spaces.action_space)
        self._are_free = [
            isinstance(leaf, FreeLeaf) for leaf in leaves(spaces.action_space, _ACTION)
        ]
        self._free_actions = (
            FreeActions(self.slab, free, spaces.num_envs, keeps_objects) if free else None
        )
        is_leaf = [leaf.path for leaf in _fixed(spaces.action_space)] == [_ACTION]
        self._only_action = self.actions[0] if is_leaf else None

    @classmethod
    def in_memory(cls, spaces: BatchSpaces, keeps_objects: bool = True) -> BatchArrays:
        """Arrays of this process alone; see the class for ``keeps_objects``."""
        views = {n: np.zeros(shape, dtype) for n, (shape, dtype) in spaces.columns().items()}
        return cls(spaces, views, keeps_objects)

    def free_writers(self, buffer: int, env_id: int, encoded: list[bytes]) -> Iterator[Writer]:
        """What takes the values of an env's free leaves, in their order.

        Args:
            buffer: in which the observation is written.
            env_id: whose.
            encoded: takes the encoded values, where they have to travel.
        """
        if self.keeps_objects:
            return iter([partial(values.__setitem__, env_id) for values in self.free_obs])
        return iter([_encoder(form, encoded) for form in self.free_obs_forms])

    def enlarge_slab_in_memory(self, shape: SlabShape) -> None:
        """Put a larger slab, of this process alone, in the place of the present one."""
        columns = self.spaces.slab_columns(shape)
        self.slab.enlarge(shape, {n: np.zeros(size, dtype) for n, (size, dtype) in columns.items()})

    def observations(
        self, buffer: int, env_ids: Array | None = None, copies_objects: bool = True
    ) -> Any:
        """Copies of the observations of some envs, batched; the free values are those read last.

        Args:
            buffer: from which.
            env_ids: int64 ``[k]``; None means all.
            copies_objects: False hands out the envs' own free values, where they were not encoded.
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
        """From now on, actions are written for readers that have not run the caller's script."""
        if self._free_actions is not None:
            self._free_actions.pickle_main_by_value()

    def write_actions(self, actions: Any, env_ids: Any = ...) -> None:
        """Note a batch of actions, in the batched form of the action space.

        Args:
            actions: one for each env, or for each of ``env_ids``.
            env_ids: int64 ``[k]``, whose.

        Raises:
            SpaceError: when they do not fit.
            SlabFull: when free values of theirs need a larger slab.
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
        """The actions of some envs, one by one, as a plain loop would see them."""
        if self._only_action is not None:
            return iter(self._only_action.read(env_ids))
        return rows(self.spaces.action_space, self.read_action_batch(env_ids), len(env_ids))

    def read_action_batch(self, env_ids: Sequence[int]) -> Any:
        """The actions of some envs in the batched form of the action space; a copy."""
        fixed = [column.read(env_ids) for column in self.actions]
        free = self._free_actions.read(env_ids) if self._free_actions is not None else []
        return self._action_of(fixed, free)

    def copy_rows(self, env_ids: Any, source: int, target: int) -> None:
        """Copy the array part of the observations of some envs from one buffer to another."""
        ids = list(env_ids)
        for new, old in zip(self.obs[target], self.obs[source], strict=True):
            new[ids] = old[ids]

    def row(self, env_id: int, buffer: int) -> Any:
        """A copy of the observation of one env, unbatched."""
        ids = np.array([env_id])
        return next(rows(self.spaces.observation_space, self.observations(buffer, ids), 1))

    def close_rows(self, env_ids: Sequence[int], buffer: int) -> None:
        """Mark transitions as cut short: no reward, not terminated, truncated."""
        ids = list(env_ids)
        self.reward[buffer][ids] = 0.0
        self.terminated[buffer][ids] = False
        self.truncated[buffer][ids] = True


def _copied(value: Any) -> Any:
    """What ``deepcopy`` makes of a value, several times faster for the usual ones."""
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
