"""RolloutBoard: the shared memory in which workers write rollouts and a learner reads them.

A worker's envs write each observation once, straight into its row of a rollout ``[T, B, ...]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space, iterate

from rookery.env.arrays import BatchArrays, BatchSpaces
from rookery.env.spaces import FreeLeaf, Leaf, Writer, batched, leaves
from rookery.errors import SpaceError
from rookery.memory import Column, Layout
from rookery.policy.actions import packed_form
from rookery.policy.weights import Weights, WeightStore
from rookery.rollout import Rollout, Tree
from rookery.rollout.text import text_dtype
from rookery.rollout.tree import stack, take

_FLOATS = ("reward", "log_prob", "value", "final_value")
_FLAGS = ("terminated", "truncated", "valid")
_SLAB = ("form", "tail_used", "loose", "fixed", "tail")  # one for all rows: nobody reads them


@dataclass(frozen=True)
class RolloutShape:
    """What rollouts hold.

    Attributes:
        observation_space: of one env.
        action_space: of one env.
        num_envs: B.
        num_steps: T.
        num_buffers: rollouts that are kept at a time; they are written in turn.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_steps: int
    num_buffers: int = 2

    def columns(self) -> dict[str, Column]:
        """Name -> column of every array, buffers first."""
        k, t, b = self.num_buffers, self.num_steps, self.num_envs
        shape, dtype = packed_form(self.action_space)
        columns = {
            f"obs.{i}": Column((k, t + 1, b, *leaf.shape), leaf.dtype)
            for i, leaf in enumerate(array_leaves(self.observation_space))
        }
        columns["action"] = Column((k, t, b, *shape), dtype)
        columns |= {name: Column((k, t, b), np.dtype(np.float32)) for name in _FLOATS}
        columns |= {name: Column((k, t, b), np.dtype(np.bool_)) for name in _FLAGS}
        columns["last_value"] = Column((k, b), np.dtype(np.float32))
        columns["policy_version"] = Column((k, b), np.dtype(np.int64))
        columns["after_reset"] = Column((k, b), np.dtype(np.bool_))
        columns["stop"] = Column((1,), np.dtype(np.int64))
        return columns


class RolloutBoard:
    """Rollouts and weights over one piece of memory.

    The observations of a buffer have T + 1 rows: the last one is what the envs showed after the
    last step, and the next buffer's first row is a copy of it.

    Args:
        shape: of the rollouts.
        model: whose weights are kept beside them.

    Attributes:
        size_bytes: of the block to allocate.
    """

    def __init__(self, shape: RolloutShape, model: Weights | None) -> None:
        self.shape = shape
        self._layout = Layout({**WeightStore.columns(model), **shape.columns()})
        self.size_bytes = self._layout.size_bytes

    def map(self, memory: Any) -> None:
        """Lay the arrays over ``memory``."""
        views = self._layout.views(memory)
        self._views = views
        self._obs = [views[name] for name in views if name.startswith("obs.")]
        self.weights = WeightStore(views)
        self.stop: Any = views["stop"].data

    def obs(self, buffer: int, envs: slice) -> Tree:
        """Observations ``[T + 1, n, ...]`` of some envs, as views."""
        columns = iter([column[buffer, :, envs] for column in self._obs])
        return batched(self.shape.observation_space, columns)

    def rollout(self, buffer: int, envs: slice) -> Rollout:
        """The rollout of some envs, as views; final observations are not kept here."""
        v = self._views
        rows: dict[str, Any] = {
            name: v[name][buffer, :, envs] for name in ("action", *_FLOATS, *_FLAGS)
        }
        obs = self.obs(buffer, envs)
        last_obs = take(obs, -1)
        return Rollout(
            obs=take(obs, slice(0, -1)),
            last_obs=last_obs,
            last_value=v["last_value"][buffer, envs],
            final_obs=stack([], last_obs),
            final_index=np.zeros((0, 2), np.int64),
            policy_version=v["policy_version"][buffer, envs],
            env_ids=np.arange(self.shape.num_envs)[envs],
            after_reset=v["after_reset"][buffer, envs],
            **rows,
        )

    def last_action(self, steps: int, env_id: int) -> Any:
        """The action of an env in the latest of its batch's ``steps``."""
        k, t = divmod(steps - 1, self.shape.num_steps)
        return self._views["action"][k % self.shape.num_buffers, t, env_id].copy()

    def arrays_for(self, envs: BatchArrays) -> ActingArrays:
        """What an `EnvBatch` writes to; step t of buffer k is its buffer ``k * T + t``."""
        k, num_steps = self.shape.num_buffers, self.shape.num_steps
        own = replace(envs.spaces, num_buffers=k * num_steps)
        views = _idle_columns(envs.spaces)
        views["reset_at"] = envs.reset_at
        numbers = [column for column in self._obs if column.dtype.kind != "U"]
        texts = [column for column in self._obs if column.dtype.kind == "U"]
        written: list[list[npt.NDArray[Any]]] = []
        for b in range(k * num_steps):
            buffer, t = divmod(b, num_steps)
            views.update({f"{name}{b}": views[f"{name}0"] for name in _SLAB})
            for i, column in enumerate(numbers):
                views[f"obs{b}.{i}"] = column[buffer, t + 1]
            for name in ("reward", "terminated", "truncated"):
                views[f"{name}{b}"] = self._views[name][buffer, t]
            written.append([column[buffer, t + 1] for column in texts])
        return ActingArrays(own, views, written)


class ActingArrays(BatchArrays):
    """Arrays of a batch whose actions are decided beside it: they need no shared memory.

    Args:
        spaces: what they hold.
        views: an array for each of ``spaces.columns()``.
        texts: per buffer, an array of strings ``[n]`` for each Text of the observation, so that
            text needs no encoding.

    Attributes:
        actions_now: one for each env of the batch, for its next step.
    """

    actions_now: Any = ()

    def __init__(
        self,
        spaces: BatchSpaces,
        views: Mapping[str, npt.NDArray[Any]],
        texts: Sequence[Sequence[npt.NDArray[Any]]],
    ) -> None:
        super().__init__(spaces, views)
        self._texts = texts

    def free_writers(self, buffer: int, env_id: int, encoded: list[bytes]) -> Iterator[Writer]:
        return iter([partial(column.__setitem__, env_id) for column in self._texts[buffer]])

    def read_actions(self, env_ids: Sequence[int]) -> Iterator[Any]:
        if isinstance(self.actions_now, np.ndarray):
            return iter(self.actions_now)
        space = batch_space(self.spaces.action_space, self.spaces.num_envs)
        return iter(iterate(space, self.actions_now))

    def read_action_batch(self, env_ids: Sequence[int]) -> Any:
        return self.actions_now


def array_leaves(space: Space[Any]) -> list[Leaf]:
    """The parts of an observation as rollouts hold them, a Text as one string.

    Raises:
        SpaceError: a part has no fixed array form.
    """
    found = []
    for leaf in leaves(space, "observation"):
        if isinstance(leaf, FreeLeaf):
            if not isinstance(leaf.space, spaces.Text):
                raise SpaceError(
                    f"{leaf.path}, a {type(leaf.space).__name__}, has no fixed array form, and "
                    "rollouts are arrays; wrap the env so that it becomes one "
                    "(gymnasium.wrappers.TransformObservation), or leave it out"
                )
            leaf = Leaf(leaf.path, (), text_dtype(leaf.space))
        found.append(leaf)
    return found


def _idle_columns(spaces: BatchSpaces) -> dict[str, npt.NDArray[Any]]:
    """Columns of this process alone, for what is not part of a rollout."""
    columns = replace(spaces, num_buffers=1).columns()
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in columns.items()}
