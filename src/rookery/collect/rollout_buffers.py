"""RolloutBuffers: the shared memory into which workers write rollouts.

Workers write each observation directly into its row of a rollout ``[T, B, ...]``, where the learner
reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector.utils import batch_space, iterate

from rookery.common.trees import stack, take
from rookery.policy.actions import packed_form
from rookery.policy.weights import Weights, WeightStore
from rookery.rollout import Rollout, Tree
from rookery.rollout.text import array_leaves
from rookery.shared import Layout
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.block import ColumnSizes, zeros
from rookery.shared.spaces import Writer, batched

_FLOATS = ("reward", "log_prob", "value", "final_value")
_FLAGS = ("terminated", "truncated", "valid")
# One for all rows, because nothing reads them.
_ROW_COLUMNS = ("form", "tail_used", "loose", "fixed", "tail")

# Three words of each worker, stored at its first env. They survive the worker.
ROW = 0  # the row that it steps or has stepped last, counted over all buffers; NO_ROW at first
START = 1  # the row to start with; a lost worker has filled the rows before it
DROPPED = 2  # env steps of a lost worker that were discarded
NO_ROW = -1


@dataclass(frozen=True)
class RolloutShape:
    """The spaces and sizes of rollouts.

    Attributes:
        observation_space: observation space of one env.
        action_space: action space of one env.
        num_envs: number of envs, ``B``.
        num_steps: steps of every env in a rollout, ``T``.
        num_buffers: number of rollouts in memory; they are written in turn.
        memory_width: size of a recurrent policy's memory per env; 0 for other policies.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_steps: int
    num_buffers: int = 2
    memory_width: int = 0

    def columns(self) -> ColumnSizes:
        """Return the column of each array by its name; the first axis is the buffer."""
        k, t, b = self.num_buffers, self.num_steps, self.num_envs
        shape, dtype = packed_form(self.action_space)
        columns: ColumnSizes = {
            f"obs.{i}": ((k, t + 1, b, *leaf.shape), leaf.dtype)
            for i, leaf in enumerate(array_leaves(self.observation_space))
        }
        columns["action"] = ((k, t, b, *shape), dtype)
        columns |= {name: ((k, t, b), np.dtype(np.float32)) for name in _FLOATS}
        columns |= {name: ((k, t, b), np.dtype(np.bool_)) for name in _FLAGS}
        columns["last_value"] = ((k, b), np.dtype(np.float32))
        columns["policy_version"] = ((k, b), np.dtype(np.int64))
        columns["after_reset"] = ((k, b), np.dtype(np.bool_))
        columns["memory"] = ((k, b, self.memory_width), np.dtype(np.float32))
        columns["stop"] = ((1,), np.dtype(np.int64))
        columns["words"] = ((b, 3), np.dtype(np.int64))
        return columns


class RolloutBuffers:
    """Rollouts and weights in one block of memory.

    The observations of a buffer have T + 1 rows. The last row has the observations after the last
    step, and the first row of the next buffer is a copy of it.

    Args:
        shape: shape of the rollouts.
        model: a model; its weights are stored too. None for a policy without a model.

    Attributes:
        size_bytes: size of the block to allocate.
    """

    def __init__(self, shape: RolloutShape, model: Weights | None) -> None:
        self.shape = shape
        self._layout = Layout({**WeightStore.columns(model), **shape.columns()})
        self.size_bytes = self._layout.size_bytes

    def map(self, memory: Any) -> None:
        """Create the arrays as views of ``memory``."""
        views = self._layout.views(memory)
        self._views = views
        self._obs = [views[name] for name in views if name.startswith("obs.")]
        self.weights = WeightStore(views)
        self.stop: Any = views["stop"].data

    def obs(self, buffer: int, envs: slice) -> Tree:
        """Return the observations ``[T + 1, n, ...]`` of some envs, as views."""
        columns = iter([column[buffer, :, envs] for column in self._obs])
        return batched(self.shape.observation_space, columns)

    def rollout(self, buffer: int, envs: slice) -> Rollout:
        """Return the rollout of some envs, as views, without final observations."""
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
            memory=v["memory"][buffer, envs] if self.shape.memory_width else None,
            **rows,
        )

    def words(self, first_id: int) -> Any:
        """Return the words ROW, START and DROPPED of the worker with first env ``first_id``."""
        return self._views["words"][first_id].data

    def last_action(self, first_id: int, env_id: int) -> Any:
        """Return the latest action of an env, or None before its first step.

        Args:
            first_id: the first env of the worker.
            env_id: the env.
        """
        row = self.words(first_id)[ROW]
        if row == NO_ROW:
            return None
        k, t = divmod(row, self.shape.num_steps)
        return self._views["action"][k, t, env_id].copy()

    def close_row(self, buffer: int, t: int, envs: slice) -> None:
        """Mark the transitions of lost envs in row ``t`` as truncated and invalid.

        The observation of row ``t`` replaces the unknown final observation.
        """
        views = self._views
        for name, value in (("reward", 0.0), ("terminated", False), ("truncated", True)):
            views[name][buffer, t, envs] = value
        views["valid"][buffer, t, envs] = False

    def num_invalid(self, buffer: int, envs: slice) -> int:
        """Count the invalid rows of some envs."""
        return int(np.count_nonzero(~self._views["valid"][buffer, :, envs]))

    def arrays_for(self, envs: BatchArrays) -> ActingArrays:
        """Return the arrays of an `EnvBatch`; step t of buffer k is its buffer ``k * T + t``.

        The last of these buffers is private memory, for resets, which belong to no row.
        """
        num_steps = self.shape.num_steps
        last = self.shape.num_buffers * num_steps
        spaces = replace(envs.spaces, num_buffers=last + 1)
        # For values that are not part of a rollout.
        private = zeros(replace(envs.spaces, num_buffers=1).columns())
        views = {**private, "reset_at": envs.reset_at, **envs.counters.views}
        reset = [np.zeros_like(column[0, 0]) for column in self._obs]
        written: list[list[npt.NDArray[Any]]] = []
        for b in range(last + 1):
            views.update({f"{name}{b}": private[f"{name}0"] for name in _ROW_COLUMNS})
            buffer, t = divmod(b, num_steps)
            rows = reset if b == last else [column[buffer, t + 1] for column in self._obs]
            numbers = [row for row in rows if row.dtype.kind != "U"]
            views.update({f"obs{b}.{i}": row for i, row in enumerate(numbers)})
            for name in ("reward", "terminated", "truncated"):
                row = private[f"{name}0"] if b == last else self._views[name][buffer, t]
                views[f"{name}{b}"] = row
            written.append([row for row in rows if row.dtype.kind == "U"])
        reset_obs = batched(self.shape.observation_space, iter(reset))
        return ActingArrays(spaces, views, written, reset_obs)


class ActingArrays(BatchArrays):
    """Arrays of a batch in the process of its actor, so that actions need no shared memory.

    Args:
        spaces: spaces and sizes of the arrays.
        views: an array for each of ``spaces.columns()``, by name.
        texts: for each buffer, an array of strings ``[n]`` for each Text of the observation, so
            that text needs no encoding.
        reset_obs: observations after resets that belong to no row, ``[n, ...]``.

    Attributes:
        reset_obs: observations after resets that belong to no row, ``[n, ...]``.
        actions_now: actions for the next step, one for each env of the batch.
    """

    actions_now: Any = ()

    def __init__(
        self,
        spaces: BatchSpaces,
        views: Mapping[str, npt.NDArray[Any]],
        texts: Sequence[Sequence[npt.NDArray[Any]]],
        reset_obs: Tree,
    ) -> None:
        super().__init__(spaces, views)
        self._texts, self.reset_obs = texts, reset_obs

    def free_writers(self, buffer: int, env_id: int, encoded: list[bytes]) -> Iterator[Writer]:
        return iter([partial(column.__setitem__, env_id) for column in self._texts[buffer]])

    def read_actions(self, env_ids: Sequence[int]) -> Iterator[Any]:
        if isinstance(self.actions_now, np.ndarray):
            return iter(self.actions_now)
        space = batch_space(self.spaces.action_space, self.spaces.num_envs)
        return iter(iterate(space, self.actions_now))

    def read_action_batch(self, env_ids: Sequence[int]) -> Any:
        return self.actions_now
