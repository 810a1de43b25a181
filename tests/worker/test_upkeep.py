"""What a supervised worker is watched for, on a clock of our own."""

from __future__ import annotations

import os

import pytest

from rookery.errors import WorkerDied
from rookery.worker import upkeep
from rookery.worker.faults import FaultPolicy
from rookery.worker.upkeep import MemoryWatch, RestartBudget


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(upkeep, "time", clock)
    return clock


def test_a_restart_too_many_raises_its_own_cause(clock: _Clock) -> None:
    budget = RestartBudget(FaultPolicy("restart", max_restarts=2, window_s=10.0))
    for cause in ("first", "second"):
        budget.spend(WorkerDied(cause))
        clock.now += 1.0
    with pytest.raises(WorkerDied, match="third"):
        budget.spend(WorkerDied("third"))


def test_restarts_are_forgotten_after_the_window(clock: _Clock) -> None:
    budget = RestartBudget(FaultPolicy("restart", max_restarts=1, window_s=10.0))
    budget.spend(WorkerDied("first"))
    clock.now += 10.5
    budget.spend(WorkerDied("second"))
    clock.now += 9.5
    with pytest.raises(WorkerDied, match="third"):
        budget.spend(WorkerDied("third"))


def test_a_large_process_is_noticed_but_not_at_every_step(clock: _Clock) -> None:
    watch = MemoryWatch(limit_mb=1.0)
    watch.look(os.getpid())
    assert watch.complaint == ""
    clock.now += 1.5
    watch.look(os.getpid())
    assert f"Worker process {os.getpid()} had " in watch.complaint
    watch.complaint = ""
    watch.look(os.getpid())
    assert watch.complaint == ""


def test_a_small_process_is_left_alone(clock: _Clock) -> None:
    watch, unlimited = MemoryWatch(limit_mb=1e6), MemoryWatch(limit_mb=None)
    clock.now += 1.5
    for each in (watch, unlimited):
        each.look(os.getpid())
        assert each.complaint == ""
