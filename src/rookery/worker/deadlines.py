"""Deadlines: notices an env that steps or resets for too long, and asks where it hangs."""

from __future__ import annotations

import os
import time
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from rookery.env.batch import IDLE
from rookery.worker.faults import FaultPolicy
from rookery.worker.protocol import STACK_SIGNAL

_STACK_WAIT_S = 1.0  # for the first words; a process that is stopped or gone never answers
_STACK_PAUSE_S = 0.05  # without a word: it has said all
_CHUNK_BYTES = 65536


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
        self.forget()

    def forget(self) -> None:
        """Begin anew, with a new command."""
        self._seen: Any = None
        self._since = 0.0

    def late(self, progress: Any) -> tuple[int, str, float] | None:
        """Env, command and time-out in seconds if the env noted in ``progress`` is late.

        One command may be many steps of the same env: steps and letters tell them apart.
        """
        now = time.perf_counter()
        word, steps, letters = progress
        if (word, steps, letters) != self._seen:
            self._seen, self._since = (word, steps, letters), now
        if word == IDLE:
            return None
        command = "step" if word > 0 else "reset"
        limit_s = self._limits[command]
        if limit_s is None or now - self._since <= limit_s:
            return None
        return abs(word) - 1, command, limit_s


def python_stack(pid: int, stacks: Connection | None) -> str:
    """The stack of every Python thread of a process that registered for it, even in native code."""
    if STACK_SIGNAL is None or stacks is None:
        return "(this platform cannot show the stack of another process)"
    os.kill(pid, STACK_SIGNAL)
    text, patience_s = b"", _STACK_WAIT_S
    while connection.wait([stacks], patience_s):
        text += os.read(stacks.fileno(), _CHUNK_BYTES)
        patience_s = _STACK_PAUSE_S
    return text.decode(errors="replace").strip() or "(the process did not answer)"
