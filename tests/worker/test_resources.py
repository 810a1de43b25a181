"""Resource use of processes: trends without outliers, limits, and exited processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from rookery.common.resources import (
    NOTHING_KNOWN,
    ProcessWatch,
    Trend,
    memory_room,
    slope_of,
)

_MIB = 2.0**20


def test_the_trend_is_the_slope_and_single_outliers_do_not_move_it() -> None:
    rng = np.random.default_rng(0)
    times = np.arange(0.0, 300.0, 5.0)
    values = 100 * _MIB + 2 * _MIB * times + rng.normal(0, 5 * _MIB, len(times))
    values[[20, 33, 47]] += 5000 * _MIB
    rate, growth = slope_of(list(zip(times, values, strict=True)))
    assert rate == pytest.approx(2 * _MIB, rel=0.1)
    assert 300 * _MIB < growth < 400 * _MIB  # of the last 200 s


def test_memory_that_is_steady_or_grew_only_at_first_has_no_sure_growth() -> None:
    rng = np.random.default_rng(1)
    times = np.arange(0.0, 300.0, 5.0)
    noisy = 100 * _MIB + rng.normal(0, 5 * _MIB, len(times))
    assert slope_of(list(zip(times, noisy, strict=True)))[1] < 16 * _MIB
    grown = np.minimum(times, 60.0) * 10 * _MIB
    assert slope_of(list(zip(times, grown, strict=True))) == (0.0, 0.0)
    falling = -times * _MIB
    assert slope_of(list(zip(times, falling, strict=True)))[1] < 0


def test_few_samples_or_a_short_time_give_no_trend() -> None:
    assert slope_of([]) is None
    assert slope_of([(0.0, 1.0), (100.0, 2.0)]) is None
    assert slope_of([(float(i), 1.0) for i in range(15)]) is None


def test_samples_of_a_long_run_stay_few_and_reach_back_to_its_beginning() -> None:
    trend, taken = Trend(), 0
    for now in np.arange(0.0, 100_000.0, 1.0):
        if trend.is_due(now):
            trend.add(now, 7.0 * now)
            taken += 1
    assert taken < 1000
    assert len(trend._samples) <= 64 and trend._samples[0][0] == 0.0
    assert trend.slope()[0] == pytest.approx(7.0)


def test_a_second_measurement_soon_after_the_first_returns_the_same() -> None:
    watch = ProcessWatch(os.getpid())
    use = watch.look()
    assert use.rss_bytes > _MIB and use.threads >= 1 and use.cpu_percent >= 0
    assert use.runnable_threads is None and use.rss_bytes_per_hour is None
    watch._looked += 1000.0  # a look within the same moment
    assert watch.look() is use


def test_the_second_measurement_counts_runnable_threads() -> None:
    watch = ProcessWatch(os.getpid())
    watch.look()
    began = psutil.Process().cpu_times().user
    while psutil.Process().cpu_times().user < began + 0.3:
        sum(range(10_000))
    use = watch.look()
    assert use.cpu_percent > 0
    # A thread that computes, or that others keep from it, is all the while one that wants to.
    if Path("/proc/self/schedstat").exists():
        assert use.runnable_threads > 0.5
    else:
        assert use.runnable_threads is None


def test_the_use_of_an_exited_process_is_unknown() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watch = ProcessWatch(child.pid)
    assert watch.look().rss_bytes is not None
    child.communicate(b"\n")
    watch._looked = None
    assert watch.look() == NOTHING_KNOWN and watch.rss_bytes() is None
    watch.sample()
    assert ProcessWatch(child.pid).look() == NOTHING_KNOWN


def test_values_that_a_platform_refuses_are_unknown(monkeypatch) -> None:
    def refuse(self):
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil.Process, "num_fds", refuse, raising=False)
    use = ProcessWatch(os.getpid()).look()
    assert use.descriptors is None and use.rss_bytes > 0


def _cgroup(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(text)
    return root


def test_free_memory_is_limited_by_the_container(tmp_path: Path) -> None:
    left = 2**10
    v2 = {
        "memory.max": str(2**20),
        "memory.current": str(2**20 - 2**9),
        "memory.stat": f"anon 5\ninactive_file {2**9}\n",
    }
    room = memory_room(_cgroup(tmp_path / "v2", v2))
    assert (room.limit_bytes, room.left_bytes, room.owner) == (2**20, left, "this container")
    v1 = {"memory/memory.limit_in_bytes": "2048", "memory/memory.usage_in_bytes": "1024"}
    assert memory_room(_cgroup(tmp_path / "v1", v1)).left_bytes == 1024


def test_without_a_limit_free_memory_is_that_of_the_machine(tmp_path: Path) -> None:
    unlimited = {"memory.max": "max", "memory.current": "1"}
    for root in (tmp_path / "none", _cgroup(tmp_path / "v2", unlimited)):
        room = memory_room(root)
        assert room.owner == "this machine" and 0 < room.left_bytes <= room.limit_bytes
    huge = {"memory/memory.limit_in_bytes": str(2**63 - 4096), "memory/memory.usage_in_bytes": "1"}
    assert memory_room(_cgroup(tmp_path / "v1", huge)).owner == "this machine"
