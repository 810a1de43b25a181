"""Deadlines: notices an env that steps or resets for too long."""

from __future__ import annotations

import time
from typing import Any

from rookery.env.batch import IDLE
from rookery.worker.faults import FaultPolicy


class Deadlines:
    """Watches the progress word of a worker while the caller waits for it.

    Time counts from when a word was first seen, which is later than when it was written: a slow
    caller, or a busy machine, makes no env late.

    Args:
        policy: says how long steps and resets may take.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._limits = {
            "step": policy.step_timeout_s,
            "reset": policy.reset_timeout_s,
        }
        self._seen: Any = None
        self._since = 0.0

    def late(self, progress: Any) -> tuple[int, str, float] | None:
        """Env, command and time-out in seconds if the env noted in ``progress`` is late.

        One command may be many steps of the same env: the counts beside the word tell them apart.
        """
        now = time.perf_counter()
        word, steps, orders = progress
        if (word, steps, orders) != self._seen:
            self._seen, self._since = (word, steps, orders), now
        if word == IDLE:
            return None
        command = "step" if word > 0 else "reset"
        limit_s = self._limits[command]
        if limit_s is None or now - self._since <= limit_s:
            return None
        return abs(word) - 1, command, limit_s
