"""Episodes: in the disabled mode, whose episode is over and whose env must be reset first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rookery.errors import UsageError
from rookery.shared.arrays import BatchArrays


class Episodes:
    """Refuses steps of ended episodes before any env is stepped.

    Args:
        arrays: of all envs.
    """

    def __init__(self, arrays: BatchArrays) -> None:
        self._arrays = arrays
        self._ended = np.zeros(arrays.spaces.num_envs, np.bool_)

    def require(self, call: str, ids: Any) -> None:
        """Complain if an episode of these envs (an index) is over.

        Raises:
            UsageError: then.
        """
        over = self._ended[ids]
        if over.any():
            envs = (np.flatnonzero(over) if ids is ... else ids[over]).tolist()
            raise UsageError(
                f"{call}: the episodes of envs {envs} have ended. With autoreset_mode='disabled', "
                "reset them first: reset(options={'reset_mask': mask}). No env was stepped"
            )

    def note(self, ids: Any, buffer: int, failed: Sequence[int] = ()) -> None:
        """Note whose episodes are over, of envs (an index) that have answered into a buffer.

        Args:
            ids: which envs.
            buffer: where they have written.
            failed: those whose rows say nothing.
        """
        kept = list(failed)
        before = self._ended[kept]
        terminated, truncated = self._arrays.terminated[buffer], self._arrays.truncated[buffer]
        self._ended[ids] = terminated[ids] | truncated[ids]
        self._ended[kept] = before
