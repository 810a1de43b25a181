"""A look at observations now and then: NaN in them spoils training without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

_STEPS = 256  # between looks, which take 2 us; NaN seldom goes away again


class NanWatch:
    """Warns once."""

    def __init__(self) -> None:
        self._steps = 0
        self._has_warned = False

    def note_step(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Count a step, and perhaps look at its observations, columns of ``[n, *shape]``."""
        self._steps += 1
        if self._steps % _STEPS == 1 and not self._has_warned:
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
                    "which no Box space allows; training on them usually fails without a word.",
                )
                return
