"""What a worker is watched for, as its FaultPolicy says: deadlines, restarts, memory."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

from rookery.env.batch import IDLE
from rookery.errors import WorkerDied, WorkerError, WorkerTimeout
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.protocol import Worker

_MEMORY_CHECK_S = 1.0


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


Late = tuple[int, str, float]  # env, command and time-out in seconds


class Deadlines:
    """Notices an env that steps or resets for too long, and a worker that does neither.

    It watches the progress word of a worker while the caller waits for it. Time counts from when a
    word was first seen, which is later than when it was written: a slow caller, or a busy machine,
    makes no env late.

    Args:
        policy: says how long making, steps and resets may take.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._limits = {
            "make": policy.make_timeout_s,
            "step": policy.step_timeout_s,
            "reset": policy.reset_timeout_s,
        }
        self._seen: Any = None
        self._since = 0.0
        self._began = 0.0

    def begin_make(self) -> None:
        """From now on, a worker has the time that it may take until it serves."""
        self._began = time.perf_counter()

    def late_make(self, env_id: int) -> Late | None:
        """What is late if a worker, of which ``env_id`` is an env, should serve by now."""
        return self._late(env_id, "make", time.perf_counter() - self._began)

    def late(self, progress: Any, awaited: Awaited | None = None) -> Late | None:
        """What is late, if the env noted in ``progress`` is.

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
            return self._late(abs(word) - 1, "step" if word > 0 else "reset", now - self._since)
        if awaited is not None:
            return self._late(awaited.env_id, awaited.command, now - self._since)
        return None

    def _late(self, env_id: int, command: str, took_s: float) -> Late | None:
        limit_s = self._limits[command]
        if limit_s is None or took_s <= limit_s:
            return None
        return env_id, command, limit_s


class RestartBudget:
    """How many restarts are left to one worker.

    Args:
        policy: says how many are allowed, and within what time.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()  # of the restarts within the window

    def spend(self, error: WorkerError) -> None:
        """Note a restart because of ``error``; where none is left, raise it instead.

        Its message says so then, if there were any, or that there could be some.
        """
        now = time.perf_counter()
        while self._times and now - self._times[0] > self._policy.window_s:
            self._times.popleft()
        if self._policy.restarts and len(self._times) < self._policy.max_restarts:
            self._times.append(now)
            return
        told = self._spent() if self._policy.restarts else _way_out(error)
        if not str(error).endswith(told):  # else an interruption has it dealt with once more
            error.args = (f"{error}{told}", *error.args[1:])
        raise error

    def _spent(self) -> str:
        count, window_s = len(self._times), self._policy.window_s
        if not count:
            return ""
        times = "once" if count == 1 else f"{count} times"
        return (
            f". Its worker had been replaced {times} within {window_s:g} s, which is all that "
            f"max_restarts={self._policy.max_restarts} allows"
        )


def _way_out(error: WorkerError) -> str:
    """What would go on although a worker was lost, to be added to what is said of it."""
    if not isinstance(error, WorkerDied | WorkerTimeout):
        return ""
    space = "\n" if "\n" in str(error) else " "  # a stack, or a sentence
    return f'{space}FaultPolicy("restart"), or --on-fault restart, goes on with a new worker.'


class MemoryWatch:
    """Notices a worker that has grown too large.

    Args:
        limit_mb: of resident memory; None means that nobody looks.

    Attributes:
        complaint: what is too large about the present worker; empty if nothing is.
    """

    def __init__(self, limit_mb: float | None) -> None:
        self.complaint = ""
        self._limit_mb = limit_mb
        self._looked = time.perf_counter()

    def look(self, worker: Worker) -> None:
        """Look at a worker's process, unless it is early to do so again."""
        now = time.perf_counter()
        if self._limit_mb is None or self.complaint or now - self._looked <= _MEMORY_CHECK_S:
            return
        self._looked = now
        rss_bytes = worker.use.rss_bytes()
        if rss_bytes is None:  # it has ended, which others notice
            return
        rss_mb = rss_bytes / 2**20
        if rss_mb > self._limit_mb:
            self.complaint = (
                f"Worker process {worker.pid} had {rss_mb:.0f} MiB of resident memory, above "
                f"max_worker_rss_mb={self._limit_mb:g}, and was replaced"
            )
