"""What a supervised worker is watched for from step to step: restarts, and memory."""

from __future__ import annotations

import time
from collections import deque

import psutil

from rookery.errors import WorkerError
from rookery.worker.faults import FaultPolicy

_MEMORY_CHECK_S = 1.0


class RestartBudget:
    """How many restarts are left to one worker.

    Args:
        policy: says how many are allowed, and within what time.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()  # of the restarts within the window

    def spend(self, error: WorkerError) -> None:
        """Note a restart because of ``error``; where none is left, raise it instead."""
        now = time.perf_counter()
        while self._times and now - self._times[0] > self._policy.window_s:
            self._times.popleft()
        if len(self._times) >= self._policy.max_restarts:
            raise error
        self._times.append(now)


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

    def look(self, pid: int) -> None:
        """Look at a process, unless it is early to do so again."""
        now = time.perf_counter()
        if self._limit_mb is None or self.complaint or now - self._looked <= _MEMORY_CHECK_S:
            return
        self._looked = now
        try:
            rss_mb = psutil.Process(pid).memory_info().rss / 2**20
        except psutil.NoSuchProcess:  # it has ended, which others notice
            return
        if rss_mb > self._limit_mb:
            self.complaint = (
                f"Worker process {pid} had {rss_mb:.0f} MiB of resident memory, above "
                f"max_worker_rss_mb={self._limit_mb:g}, and was replaced"
            )
