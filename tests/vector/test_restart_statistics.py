"""Restarts of workers in the statistics of vector envs and collectors."""

from __future__ import annotations

import numpy as np
import pytest

import rookery
from rookery import FaultPolicy
from rookery.collect import CollectorStatistics
from rookery.testing import Fault, Faulty


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_restarts_and_lost_rows_are_counted(mode: str) -> None:
    class Asking(rookery.Policy):
        """Asks for faults in its third and fifth step."""

        count = 0

        def act(self, obs, deterministic=False):
            self.count += 1
            action = np.zeros(len(obs), np.int64)
            action[0] = Fault.RAISE if self.count in (3, 5) else 0
            zeros = np.zeros(len(obs), np.float32)
            return rookery.PolicyStep(action, zeros, zeros)

    with rookery.make_vec(
        Faulty, 4, "process", num_workers=2, autoreset_mode=mode, faults=FaultPolicy("restart")
    ) as venv:
        collector = rookery.SyncCollector(venv, Asking(), 8, seed=0)
        assert collector.statistics() == CollectorStatistics(0, 0)
        collector.collect()
        assert collector.statistics() == CollectorStatistics(2, 4)
        collector.collect()
        assert collector.statistics() == CollectorStatistics(2, 4)
        assert [backend.restarts for backend in venv.statistics().workers] == [2, 0]
    assert collector.statistics() == CollectorStatistics(2, 4)


def test_both_halves_of_a_double_buffered_collector_count() -> None:
    class Asking(rookery.Policy):
        count = 0

        def act(self, obs, deterministic=False):
            self.count += 1
            action = np.full(len(obs), Fault.KILL if self.count in (3, 4) else 0)
            zeros = np.zeros(len(obs), np.float32)
            return rookery.PolicyStep(action, zeros, zeros)

    def make() -> rookery.VectorEnv:
        return rookery.make_vec(
            Faulty, 2, "process", num_workers=1, autoreset_mode="same_step",
            faults=FaultPolicy("restart"),
        )  # fmt: skip

    with make() as first, make() as second:
        collector = rookery.DoubleBufferedCollector((first, second), Asking(), 6, seed=0)
        rollout = collector.collect()
        assert collector.statistics() == CollectorStatistics(2, 4)
        assert (~rollout.valid).sum() == 4


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_what_has_no_processes_counts_none(backend: str) -> None:
    with rookery.make_vec(Faulty, 2, backend) as venv:
        assert all(backend.restarts == 0 for backend in venv.statistics().workers)
