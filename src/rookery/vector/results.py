"""Results of a vector env: arrays for the caller, ended episodes, and a check for NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rookery.errors import UsageError
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_reader import RowReader

_NAN_STEPS = 256  # steps between two checks, which take 2 us; NaN seldom disappears again


class Results:
    """Reads the arrays that the envs write, and chooses the buffer for their next results.

    Args:
        arrays: arrays of all envs.
        copy: copy results out of the arrays, instead of returning views.

    Attributes:
        reader: reads values without a column, such as infos.
        buffer: index of the buffer of the latest call.
        infos_per_env: return infos as a list with one dict per env.
    """

    def __init__(self, arrays: BatchArrays, copy: bool) -> None:
        self.reader = RowReader(arrays)
        self.buffer = 0
        self.infos_per_env = False
        self._arrays, self._copy = arrays, copy
        self._num_buffers = arrays.spaces.num_buffers
        self._num_envs = arrays.spaces.num_envs
        # The buffer that each env wrote last, noted afterwards, since the order may be interrupted.
        self._latest = np.zeros(self._num_envs, np.int64)
        self._are_single = False  # the buffer holds results of single orders
        self._nan_watch = NanWatch()

    def prepare(self, buffer: int, env_ids: Any) -> None:
        """Prepare a buffer for the results of a call of some envs; None means all."""
        self.buffer, self._are_single = buffer, False
        if self._arrays.row_buffer.added[buffer]:
            ids = range(self._num_envs) if env_ids is None else env_ids.tolist()
            self._arrays.row_buffer.forget_added(ids, buffer)

    def prepare_step(self) -> int:
        """Prepare the next buffer for a step of all envs, and return its index."""
        if self._num_buffers == 1 and not self._arrays.row_buffer.added[0]:
            self._are_single = False
            return 0
        buffer = self.next_buffer()
        self.prepare(buffer, None)
        return buffer

    def prepare_singly(self, env_ids: npt.NDArray[np.int64]) -> int:
        """Prepare a buffer for single orders to some envs, and return its index.

        Views that were returned before stay valid, because they belong to the other buffer.
        """
        if not self._are_single:
            self.buffer, self._are_single = self.next_buffer(), True
        self._arrays.row_buffer.forget_added(env_ids.tolist(), self.buffer)
        return self.buffer

    def carry_over(self, env_ids: npt.NDArray[np.int64], buffer: int) -> None:
        """Copy the last observations of idle envs into the buffer of the next results."""
        row_buffer = self._arrays.row_buffer
        for source in set(self._latest[env_ids].tolist()) - {buffer}:
            self._arrays.copy_rows(env_ids[self._latest[env_ids] == source], source, buffer)
        row_buffer.void_rows(env_ids, buffer)
        row_buffer.forget_added(env_ids.tolist(), buffer)
        self._latest[env_ids] = buffer

    def written(self, env_ids: Any) -> None:
        """Record that the current buffer has the latest results of envs (an index)."""
        self._latest[env_ids] = self.buffer

    def next_buffer(self) -> int:
        """Return the index of the buffer for the next results of all envs."""
        return (self.buffer + 1) % self._num_buffers

    def step(self, has_extras: bool) -> tuple[Any, Any, Any, Any, Any]:
        """Return the results of a step of all envs, as ``step`` does."""
        arrays, b = self._arrays, self.buffer
        self._nan_watch.note_step(arrays.obs[b])
        reward, terminated, truncated = arrays.reward[b], arrays.terminated[b], arrays.truncated[b]
        obs, infos = self.obs_and_infos(has_extras)
        if self._copy:
            return obs, reward.copy(), terminated.copy(), truncated.copy(), infos
        return obs, reward, terminated, truncated, infos

    def obs_and_infos(self, has_extras: bool) -> tuple[Any, Any]:
        """Return the observations and infos of all envs, as ``reset`` does.

        Args:
            has_extras: an env sent anything besides its columns.
        """
        if self._num_buffers > 1:
            self.written(...)
        has_infos = has_extras or bool(self._arrays.row_buffer.added[self.buffer])
        return self._observations(), self._infos(has_infos)

    def some(self, ids: npt.NDArray[np.int64]) -> tuple[Any, Any, Any, Any, Any]:
        """Return copies of the results of some envs, int64 ``[k]``."""
        self.written(ids)
        arrays, b = self._arrays, self.buffer
        if arrays.free_obs:
            self.reader.read_free(b, ids.tolist())
        infos = self.reader.infos_per_env if self.infos_per_env else self.reader.infos
        return (
            arrays.observations(b, ids),
            arrays.reward[b][ids],
            arrays.terminated[b][ids],
            arrays.truncated[b][ids],
            infos(b, ids),
        )

    def _observations(self) -> Any:
        """Return the observations of the current buffer: copies, or views with copy=False."""
        arrays, b = self._arrays, self.buffer
        if arrays.free_obs:
            self.reader.read_free(b, range(self._num_envs))
            return arrays.observations(b, copies_objects=self._copy)
        obs = arrays.batched_obs[b]
        if not self._copy:
            return obs
        return obs.copy() if type(obs) is np.ndarray else arrays.observations(b)

    def _infos(self, has_infos: bool) -> Any:
        if self.infos_per_env:
            if not has_infos:
                return [{} for _ in range(self._num_envs)]
            return self.reader.infos_per_env(self.buffer)
        return self.reader.infos(self.buffer) if has_infos else {}


class EndedEpisodes:
    """Ended episodes in the disabled autoreset mode, where envs must be reset before a step.

    Args:
        arrays: arrays of all envs.
    """

    def __init__(self, arrays: BatchArrays) -> None:
        self._arrays = arrays
        self._ended = np.zeros(arrays.spaces.num_envs, np.bool_)

    def require(self, call: str, ids: Any) -> None:
        """Raise if an episode of these envs (an index) has ended.

        Raises:
            UsageError: an episode has ended; no env was stepped.
        """
        over = self._ended[ids]
        if over.any():
            envs = (np.flatnonzero(over) if ids is ... else ids[over]).tolist()
            raise UsageError(
                f"{call}: the episodes of envs {envs} have ended. With autoreset_mode='disabled', "
                "reset them first: reset(options={'reset_mask': mask}). No env was stepped"
            )

    def note(self, ids: Any, buffer: int, failed: Sequence[int] = ()) -> None:
        """Update which episodes have ended.

        Args:
            ids: envs that have answered; an index.
            buffer: index of the buffer that they have written.
            failed: ids of envs with invalid rows.
        """
        kept = list(failed)
        before = self._ended[kept]
        terminated, truncated = self._arrays.terminated[buffer], self._arrays.truncated[buffer]
        self._ended[ids] = terminated[ids] | truncated[ids]
        self._ended[kept] = before


class NanWatch:
    """Warns once of NaN in observations, which usually spoils training silently."""

    def __init__(self) -> None:
        self._steps = 0
        self._has_warned = False

    def note_step(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Count a step, and check its observations now and then: columns ``[n, *shape]``."""
        self._steps += 1
        if self._steps % _NAN_STEPS == 1 and not self._has_warned:
            self._look(columns)

    def _look(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        for column in columns:
            if column.dtype.kind != "f":
                continue
            per_env = np.isnan(column).reshape(len(column), -1).any(axis=1)
            if per_env.any():
                self._has_warned = True
                gym.logger.warn(
                    "%s",
                    f"The observations of envs {np.flatnonzero(per_env).tolist()} contain NaN, "
                    "which no Box space allows; training on them usually fails silently.",
                )
                return
