"""How many CPUs this process may really use."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path


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


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
