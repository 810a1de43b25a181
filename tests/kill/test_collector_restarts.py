"""A worker that acts by itself is replaced wherever it ends, and no row is told wrongly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from counting_envs import Counting
from test_collector_points import EARLY, LATE, POINTS
from traps import Trap, armed

import rookery
from rookery import FaultPolicy
from rookery.policy import make_policy

T = 8
FAULTS = FaultPolicy("restart", max_restarts=5)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("point", [point for point in POINTS if point not in LATE])
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_collectors_worker_is_replaced_wherever_it_ends(
    tmp_path: Path, method: str, point: str, mode: Any
) -> None:
    trap = Trap(point, str(tmp_path))
    last: dict[int, Any] = {}
    lost = 0
    with armed(trap), rookery.WorkerCollector(
        Counting, make_policy, 4, 2, T, mode, start_method=method, faults=FAULTS
    ) as collector:  # fmt: skip
        lost += _follow(collector.collect(), last)
        trap.set()
        if point in EARLY:  # then it catches the one that takes the place of this one
            process = psutil.Process(collector.pids[1])  # before it is gone
            process.kill()
            process.wait(60)
        for _ in range(12):
            collector.policy.version += 1
            lost += _follow(collector.collect(), last)
        statistics = collector.statistics()
    assert not trap.is_set
    assert statistics.restarts == (2 if point in EARLY else 1)
    assert lost <= statistics.lost_rows <= 2 * T
    if mode == "sync":
        assert lost == statistics.lost_rows <= 2


def _follow(rollout: rookery.Rollout, last: dict[int, Any]) -> int:
    """Hold that a rollout goes on from the one before it; return how many rows were lost."""
    after = np.concatenate([rollout.obs[1:], rollout.last_obs[None]])
    count = rollout.obs[..., 0]
    np.testing.assert_array_equal(after[..., 0], np.where(rollout.done, 0, count + 1))
    np.testing.assert_array_equal(rollout.done, ~rollout.valid)  # no episode ends by itself
    np.testing.assert_array_equal(rollout.reward, rollout.valid)
    assert rollout.final_index.tolist() == np.argwhere(rollout.done).tolist()
    np.testing.assert_array_equal(rollout.final_obs, rollout.obs[rollout.done])
    for b, env_id in enumerate(rollout.env_ids.tolist()):
        expected = last.get(env_id, 0.0)
        assert count[0, b] == (0.0 if rollout.after_reset[b] else expected)
        last[env_id] = rollout.last_obs[b, 0]
    return int((~rollout.valid).sum())
