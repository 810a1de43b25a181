"""How many CPUs this process may really use, and what others leave of them."""

from __future__ import annotations

import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_OTHERS = 0.3  # CPUs: what other processes use is then no matter of rounding


def usable_cpus() -> int:
    """CPUs by affinity mask and cgroup quota, at least 1."""
    return max(math.ceil(cpu_capacity()), 1)


def cpu_capacity() -> float:
    """CPUs' worth of computing, which a quota may make a fraction."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota(Path("/sys/fs/cgroup"))
    return min(float(count), quota) if quota else float(count)


def cgroup_quota(root: Path) -> float | None:
    """CPUs that a container's quota allows (cgroup v2, then v1); None without one."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        quota = _read(root / "cpu" / "cpu.cfs_quota_us")
        period = _read(root / "cpu" / "cpu.cfs_period_us")
    if not quota.lstrip("-").isdigit() or not period.isdigit():
        return None
    return int(quota) / int(period) if int(quota) > 0 else None


def cpus_in_use(seconds: float = 0.3) -> float:
    """CPUs' worth of computing that is done just now, of the CPUs that this process may use.

    Unlike the system's load average it knows nothing of what has ended by now.

    Args:
        seconds: how long this one sleeps and looks on.
    """
    shares = psutil.cpu_percent(seconds, percpu=True)
    return float(sum(_of_usable(shares))) / 100


def _of_usable(by_cpu: list[Any]) -> list[Any]:
    """Of what is known of every CPU, that of the CPUs that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return by_cpu
    return [each for i, each in enumerate(by_cpu) if i in os.sched_getaffinity(0)] or by_cpu


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class CpuUsage:
    """Seconds of computing so far, on the CPUs that this process may use.

    Attributes:
        wall_s: a clock.
        all_s: of all processes.
        ours_s: of this process and the worker.
        cpus: how many CPUs these are.
    """

    wall_s: float
    all_s: float
    ours_s: float
    cpus: int

    @classmethod
    def now(cls, worker_pid: int) -> CpuUsage:
        """Until now."""
        cpus = _of_usable(psutil.cpu_times(percpu=True))
        own = [psutil.Process().cpu_times(), psutil.Process(worker_pid).cpu_times()]
        return cls(
            time.perf_counter(),
            sum(times.user + times.system + getattr(times, "nice", 0.0) for times in cpus),
            sum(times.user + times.system for times in own),
            len(cpus),
        )

    def left_since(self, before: CpuUsage) -> float:
        """The share of a core that the others leave to one process, at most 1."""
        wall_s = self.wall_s - before.wall_s
        others_s = self.all_s - before.all_s - (self.ours_s - before.ours_s)
        others = max(others_s / wall_s, 0.0)
        if others < _OTHERS:
            return 1.0
        return min(self.cpus / (1 + 2 * others), 1.0)  # beside us they got half of what they want
