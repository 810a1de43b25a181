"""CPUs that this process may use, and how busy they are."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

_OTHERS = 0.3  # CPUs; less than this in other processes is regarded as rounding


def usable_cpus() -> int:
    """Return the number of CPUs by affinity mask and cgroup quota, at least 1."""
    return max(math.ceil(cpu_capacity()), 1)


def cpu_capacity() -> float:
    """Return the CPUs by affinity mask and cgroup quota; a quota may be a fraction."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    quota = cgroup_quota(Path("/sys/fs/cgroup"))
    return min(float(count), quota) if quota else float(count)


def processor_name() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cgroup_quota(root: Path) -> float | None:
    """Return the CPUs of a container's quota (cgroup v2, then v1), or None without a quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        quota = _read(root / "cpu" / "cpu.cfs_quota_us")
        period = _read(root / "cpu" / "cpu.cfs_period_us")
    if not quota.lstrip("-").isdigit() or not period.isdigit():
        return None
    return int(quota) / int(period) if int(quota) > 0 else None


def cpus_in_use(seconds: float = 0.3) -> float:
    """Measure how many of the CPUs that this process may use are busy.

    Unlike the system's load average, this excludes work that has already finished.

    Args:
        seconds: duration of the measurement.
    """
    shares = psutil.cpu_percent(seconds, percpu=True)
    return float(sum(_of_usable(shares))) / 100


def _of_usable(by_cpu: list[Any]) -> list[Any]:
    """Return the entries of ``by_cpu`` for the CPUs that this process may use."""
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
    """CPU seconds so far, on the CPUs that this process may use.

    Attributes:
        wall_s: time of the measurement.
        all_s: CPU seconds of all processes.
        ours_s: CPU seconds of this process and the worker.
        cpus: number of CPUs.
    """

    wall_s: float
    all_s: float
    ours_s: float
    cpus: int

    @classmethod
    def now(cls, worker_pid: int) -> CpuUsage:
        """Measure the CPU seconds used so far."""
        cpus = _of_usable(psutil.cpu_times(percpu=True))
        ours = [psutil.Process().cpu_times(), psutil.Process(worker_pid).cpu_times()]
        return cls(
            time.perf_counter(),
            sum(times.user + times.system + getattr(times, "nice", 0.0) for times in cpus),
            sum(times.user + times.system for times in ours),
            len(cpus),
        )

    def left_since(self, before: CpuUsage) -> float:
        """Return the fraction of a core that other processes leave to one process, at most 1."""
        wall_s = self.wall_s - before.wall_s
        others_s = self.all_s - before.all_s - (self.ours_s - before.ours_s)
        others = max(others_s / wall_s, 0.0)
        if others < _OTHERS:
            return 1.0
        # While they compete with us, other processes get half of the CPU time they need.
        return min(self.cpus / (1 + 2 * others), 1.0)
