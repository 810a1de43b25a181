"""Deadlines: notices an env that steps or resets for too long, and a worker that does neither."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from rookery.env.batch import IDLE
from rookery.worker.faults import FaultPolicy


class Awaited(NamedTuple):
    """What a caller waits for while no env is busy.

    A worker can be stopped, or be kept, between its envs' steps too.

    Attributes:
        env_id: one of the envs.
        command: "step" or "reset".
        number: of the order or request.
    """

    env_id: int
    command: str
    number: int


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

    def late(self, progress: Any, awaited: Awaited | None = None) -> tuple[int, str, float] | None:
        """Env, command and time-out in seconds if the env noted in ``progress`` is late.

        One command may be many steps of the same env: the counts beside the word tell them apart.

        Args:
            progress: of the worker.
            awaited: what is late if no env is busy for so long; None if nothing is.
        """
        now = time.perf_counter()
        word, steps, orders = progress
        if (word, steps, orders, awaited) != self._seen:
            self._seen, self._since = (word, steps, orders, awaited), now
        if word != IDLE:
            env_id, command = abs(word) - 1, "step" if word > 0 else "reset"
        elif awaited is not None:
            env_id, command, _ = awaited
        else:
            return None
        limit_s = self._limits[command]
        if limit_s is None or now - self._since <= limit_s:
            return None
        return env_id, command, limit_s
