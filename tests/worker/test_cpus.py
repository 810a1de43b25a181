from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.common.cpus import CpuUsage, cgroup_quota, cpus_in_use, usable_cpus


def _write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_cgroup_quotas_of_both_versions(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    for name, text in files.items():
        _write(tmp_path, name, text)
    assert cgroup_quota(tmp_path) == quota


def test_there_is_always_a_cpu() -> None:
    assert usable_cpus() >= 1


@pytest.mark.parametrize(
    ("others_s", "share"), [(0.0, 1.0), (0.02, 1.0), (0.1, 2 / 3), (0.2, 0.4), (0.5, 2 / 11)]
)
def test_cpus_used_by_other_processes_are_subtracted(others_s: float, share: float) -> None:
    before = CpuUsage(wall_s=5.0, all_s=100.0, ours_s=7.0, cpus=2)
    after = CpuUsage(wall_s=5.1, all_s=100.08 + others_s, ours_s=7.08, cpus=2)
    assert after.left_since(before) == pytest.approx(share)


def test_many_cpus_leave_a_whole_one() -> None:
    before = CpuUsage(0.0, 0.0, 0.0, cpus=16)
    assert CpuUsage(1.0, 3.0, 0.0, cpus=16).left_since(before) == 1.0


def test_cpu_usage_separates_this_process_from_others() -> None:
    before = CpuUsage.now(os.getpid())
    after = CpuUsage.now(os.getpid())
    assert after.wall_s >= before.wall_s and after.all_s >= before.all_s > 0
    assert after.ours_s >= before.ours_s > 0 and after.cpus >= 1


def test_cpu_usage_of_other_processes_is_measured() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            used = cpus_in_use()
        finally:
            other.kill()
    assert 0.1 < used <= (os.cpu_count() or 1)
