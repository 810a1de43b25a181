"""Counts and times of a native batch, in the columns of :mod:`rookery.shared.stopwatch`.

All envs step in one call, so their individual times are unknown. The time of the call divided by
the number of envs is recorded for each env, and no env is reported as the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rookery.shared.stopwatch import (
    ALWAYS_FROM_S,
    EPISODES,
    EXTRA,
    RESET_NS,
    RESETS,
    SPARSELY,
    STEP_NS,
    WAIT_NS,
    EnvCounters,
    bucket_of,
)

Flags = npt.NDArray[np.bool_]


class NativeWatch:
    """Writes the words of one native batch.

    Args:
        watched: the words of all envs.
        ids: the batch's envs.
    """

    def __init__(self, watched: EnvCounters, ids: range) -> None:
        own = slice(ids.start, ids.stop)
        self._words, self._steps = watched.words[own], watched.steps[own]
        self._resets = watched.resets[own]
        self._count = len(ids)
        self._waited_before = int(self._words[0, WAIT_NS])
        self._began: float | None = None
        self._busy_before = 0.0
        self._until_timed = 1

    def begin(self, started: float, busy_s: float) -> None:
        """Record how long the batch was idle; see `Stopwatch.begin`."""
        if self._began is None:
            self._began, self._busy_before = started, busy_s
        waited_s = started - self._began - (busy_s - self._busy_before)
        self._words[0, WAIT_NS] = self._waited_before + max(int(waited_s * 1e9), 0)

    def note_step(self, took_s: float) -> None:
        """Record a step of all envs."""
        self._until_timed -= 1
        if self._until_timed > 0:
            return
        each_ns = int(took_s * 1e9 / self._count)
        self._words[:, STEP_NS] += each_ns
        self._steps[:, bucket_of(each_ns)] += 1
        self._until_timed = 1 if took_s >= ALWAYS_FROM_S * self._count else SPARSELY

    def note_reset(self, places: Sequence[int], took_s: float) -> None:
        """Record a reset of some envs."""
        chosen = list(places)
        each_ns = int(took_s * 1e9 / max(len(chosen), 1))
        self._words[chosen, RESET_NS] += each_ns
        self._resets[chosen, bucket_of(each_ns)] += 1

    def note_reset_in_place_of_step(self) -> None:
        """Record that a step order resets all envs."""
        self._words[:, EXTRA] -= 1

    def note_ends(self, ended: Flags, were_reset: bool) -> None:
        """Record the envs with finished episodes, and if the step has reset them."""
        if b"\1" in ended.tobytes():  # a fifth of what any() takes
            self._words[ended, EPISODES] += 1
            self._words[ended, RESETS] += were_reset

    def note_resets_instead(self, reset: Flags) -> None:
        """Record the envs that a step order has reset."""
        self._words[reset, EXTRA] -= 1
        self._words[reset, RESETS] += 1
