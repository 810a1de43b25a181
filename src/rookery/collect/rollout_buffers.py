"""RolloutBuffers: the shared memory in which workers write rollouts and a learner reads them.

A worker's envs write each observation once, straight into its row of a rollout ``[T, B, ...]``.
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
from rookery.shared import Column, Layout
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.spaces import Writer, batched

_FLOATS = ("reward", "log_prob", "value", "final_value")
_FLAGS = ("terminated", "truncated", "valid")
# One for all rows, because nothing reads them.
_ROW_COLUMNS = ("form", "tail_used", "loose", "fixed", "tail")

# Words of each worker about what it fills, at the place of its first env; they outlive it.
ROW = 0  # that it steps, or has stepped, counted over all buffers; NO_ROW before the first
START = 1  # the row with which it is to begin; those before it are of a worker that was lost
DROPPED = 2  # rows, of one env each, that a worker before it had filled, and that were given up
NO_ROW = -1


@dataclass(frozen=True)
class RolloutShape:
    """What rollouts hold.

    Attributes:
        observation_space: of one env.
        action_space: of one env.
        num_envs: B.
        num_steps: steps of every env in a rollout, ``T``.
        num_buffers: rollouts that are kept at a time; they are written in turn.
        memory_size: numbers that the policy remembers of one env; 0 where it remembers nothing.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    num_envs: int
    num_steps: int
    num_buffers: int = 2
    memory_size: int = 0

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
        columns["memory"] = Column((k, b, self.memory_size), np.dtype(np.float32))
        columns["stop"] = Column((1,), np.dtype(np.int64))
        columns["words"] = Column((b, 3), np.dtype(np.int64))
        return columns


class RolloutBuffers:
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
            memory=v["memory"][buffer, envs] if self.shape.memory_size else None,
            **rows,
        )

    def words(self, first_id: int) -> Any:
        """The words of the worker whose first env is ``first_id``, see ROW, START and DROPPED."""
        return self._views["words"][first_id].data

    def last_action(self, first_id: int, env_id: int) -> Any:
        """The action of an env in the row that its worker has begun last; None before the first.

        Args:
            first_id: of the worker's envs.
            env_id: which of them.
        """
        row = self.words(first_id)[ROW]
        if row == NO_ROW:
            return None
        k, t = divmod(row, self.shape.num_steps)
        return self._views["action"][k, t, env_id].copy()

    def close_row(self, buffer: int, t: int, envs: slice) -> None:
        """Close the transitions of envs that were lost in row ``t``; nobody is to learn from them.

        The last observation known, on which the row's action was decided, stands in for the final
        one.
        """
        views = self._views
        for name, value in (("reward", 0.0), ("terminated", False), ("truncated", True)):
            views[name][buffer, t, envs] = value
        views["valid"][buffer, t, envs] = False

    def num_invalid(self, buffer: int, envs: slice) -> int:
        """Count the rows of some envs that are not to be learned from."""
        return int(np.count_nonzero(~self._views["valid"][buffer, :, envs]))

    def arrays_for(self, envs: BatchArrays) -> ActingArrays:
        """What an `EnvBatch` writes to; step t of buffer k is its buffer ``k * T + t``.

        One more buffer, the last, is of this process alone: for resets, which belong to no row.
        """
        num_steps = self.shape.num_steps
        last = self.shape.num_buffers * num_steps
        spaces = replace(envs.spaces, num_buffers=last + 1)
        idle = _idle_columns(envs.spaces)
        views = {**idle, "reset_at": envs.reset_at, **envs.counters.views}
        reset = [np.zeros_like(column[0, 0]) for column in self._obs]
        written: list[list[npt.NDArray[Any]]] = []
        for b in range(last + 1):
            views.update({f"{name}{b}": idle[f"{name}0"] for name in _ROW_COLUMNS})
            buffer, t = divmod(b, num_steps)
            rows = reset if b == last else [column[buffer, t + 1] for column in self._obs]
            numbers = [row for row in rows if row.dtype.kind != "U"]
            views.update({f"obs{b}.{i}": row for i, row in enumerate(numbers)})
            for name in ("reward", "terminated", "truncated"):
                own = idle[f"{name}0"] if b == last else self._views[name][buffer, t]
                views[f"{name}{b}"] = own
            written.append([row for row in rows if row.dtype.kind == "U"])
        reset_obs = batched(self.shape.observation_space, iter(reset))
        return ActingArrays(spaces, views, written, reset_obs)


class ActingArrays(BatchArrays):
    """Arrays of a batch whose actions are decided beside it: they need no shared memory.

    Args:
        spaces: what they hold.
        views: an array for each of ``spaces.columns()``.
        texts: per buffer, an array of strings ``[n]`` for each Text of the observation, so that
            text needs no encoding.
        reset_obs: what envs show after resets that belong to no row, ``[n, ...]``.

    Attributes:
        reset_obs: as given.
        actions_now: one for each env of the batch, for its next step.
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


def _idle_columns(spaces: BatchSpaces) -> dict[str, npt.NDArray[Any]]:
    """Columns of this process alone, for what is not part of a rollout."""
    columns = replace(spaces, num_buffers=1).columns()
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in columns.items()}
