"""Results: what the envs have written, as the caller of a vector env gets it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.shared.arrays import BatchArrays
from rookery.shared.row_reader import RowReader
from rookery.vector.nan import NanWatch


class Results:
    """Reads the arrays of all envs.

    Args:
        arrays: that the envs write to.
        copy: whether results are copied out of them.

    Attributes:
        reader: of what has no column of its own.
        buffer: that was ordered to be written last, by all envs together.
        infos_per_env: whether infos come as a list with one dict for each env.
    """

    def __init__(self, arrays: BatchArrays, copy: bool) -> None:
        self.reader = RowReader(arrays)
        self.buffer = 0
        self.infos_per_env = False
        self._arrays, self._copy = arrays, copy
        self._num_buffers = arrays.spaces.num_buffers
        self._num_envs = arrays.spaces.num_envs
        # The buffer each env wrote last. It is noted once that is done: what was about to be
        # ordered may be interrupted, and then nobody writes.
        self._latest = np.zeros(self._num_envs, np.int64)
        self._are_single = False  # whether the buffer holds results of single envs
        self._nan_watch = NanWatch()

    def begin(self, buffer: int, env_ids: Any) -> None:
        """Note that envs (None: all) are ordered to write into a buffer, to be read together."""
        self.buffer, self._are_single = buffer, False
        if self._arrays.row_buffer.added[buffer]:
            ids = range(self._num_envs) if env_ids is None else env_ids.tolist()
            self._arrays.row_buffer.forget_added(ids, buffer)

    def begin_step(self) -> int:
        """Note that all envs are ordered to write into the next buffer, and return that."""
        if self._num_buffers == 1 and not self._arrays.row_buffer.added[0]:
            self._are_single = False
            return 0
        buffer = self.next_buffer()
        self.begin(buffer, None)
        return buffer

    def begin_singly(self, env_ids: npt.NDArray[np.int64]) -> int:
        """Note that some envs are ordered to write a result each; return the buffer for it.

        Results that were handed out as views stay as they are, for they lie in the other buffer.
        """
        if not self._are_single:
            self.buffer, self._are_single = self.next_buffer(), True
        self._arrays.row_buffer.forget_added(env_ids.tolist(), self.buffer)
        return self.buffer

    def carry_over(self, env_ids: npt.NDArray[np.int64], buffer: int) -> None:
        """Put the last observations of some envs, which are idle, into the next results."""
        row_buffer = self._arrays.row_buffer
        for source in set(self._latest[env_ids].tolist()) - {buffer}:
            self._arrays.copy_rows(env_ids[self._latest[env_ids] == source], source, buffer)
        row_buffer.void_rows(env_ids, buffer)
        row_buffer.forget_added(env_ids.tolist(), buffer)
        self._latest[env_ids] = buffer

    def written(self, env_ids: Any) -> None:
        """Note that envs (an index) have written into the present buffer."""
        self._latest[env_ids] = self.buffer

    def next_buffer(self) -> int:
        """The buffer that the next results of all envs go into."""
        return (self.buffer + 1) % self._num_buffers

    def step(self, has_told: bool) -> tuple[Any, Any, Any, Any, Any]:
        """The results of a step of all envs, as ``step`` returns them."""
        arrays, b = self._arrays, self.buffer
        self._nan_watch.note_step(arrays.obs[b])
        reward, terminated, truncated = arrays.reward[b], arrays.terminated[b], arrays.truncated[b]
        obs, infos = self.reset(has_told)
        if self._copy:
            return obs, reward.copy(), terminated.copy(), truncated.copy(), infos
        return obs, reward, terminated, truncated, infos

    def reset(self, has_told: bool) -> tuple[Any, Any]:
        """The results of a reset of all envs, as ``reset`` returns them.

        Args:
            has_told: whether an env has told anything beside its columns.
        """
        if self._num_buffers > 1:
            self.written(...)
        has_infos = has_told or bool(self._arrays.row_buffer.added[self.buffer])
        return self._observations(), self._infos(has_infos)

    def some(self, ids: npt.NDArray[np.int64]) -> tuple[Any, Any, Any, Any, Any]:
        """Copies of the results of some envs, int64 ``[k]``."""
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
        """The observations of the present buffer, batched: copies, or views with copy=False."""
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
