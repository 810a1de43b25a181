"""Deadlines, restarts and memory limits, with a simulated clock."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from rookery.common.resources import ProcessWatch
from rookery.errors import EnvFailed, WorkerDied, WorkerTimeout
from rookery.worker import fault_policy
from rookery.worker.fault_policy import Deadlines, FaultPolicy, MemoryWatch, RestartBudget


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(fault_policy, "time", clock)
    return clock


def test_a_restart_too_many_raises_its_own_cause(clock: _Clock) -> None:
    budget = RestartBudget(FaultPolicy("restart", max_restarts=2, window_s=10.0))
    for cause in ("first", "second"):
        budget.spend(WorkerDied(cause))
        clock.now += 1.0
    with pytest.raises(WorkerDied, match="third"):
        budget.spend(WorkerDied("third"))


def test_where_none_is_allowed_a_lost_worker_names_the_policy_that_allows_some() -> None:
    budget = RestartBudget(FaultPolicy())
    error = WorkerTimeout("It hung:\nFile env.py")
    for _ in range(2):  # again by an interruption
        with pytest.raises(WorkerTimeout) as caught:
            budget.spend(error)
        assert (
            str(caught.value).count('\nFaultPolicy("restart"), or --on-fault restart, continues')
            == 1
        )
    with pytest.raises(EnvFailed, match=r"^the env itself$"):
        budget.spend(EnvFailed("the env itself"))


def test_restarts_are_forgotten_after_the_window(clock: _Clock) -> None:
    budget = RestartBudget(FaultPolicy("restart", max_restarts=1, window_s=10.0))
    budget.spend(WorkerDied("first"))
    clock.now += 10.5
    budget.spend(WorkerDied("second"))
    clock.now += 9.5
    with pytest.raises(WorkerDied, match="third"):
        budget.spend(WorkerDied("third"))


_THIS = SimpleNamespace(pid=os.getpid(), use=ProcessWatch(os.getpid()))


def test_a_large_process_is_noticed_but_not_at_every_step(clock: _Clock) -> None:
    memory = MemoryWatch(limit_mb=1.0)
    memory.look(_THIS)
    assert memory.complaint == ""
    clock.now += 1.5
    memory.look(_THIS)
    assert f"Worker process {os.getpid()} had " in memory.complaint
    memory.forget()
    memory.look(_THIS)
    assert memory.complaint == ""


def test_a_small_process_is_left_alone(clock: _Clock) -> None:
    memory, unlimited = MemoryWatch(limit_mb=1e6), MemoryWatch(limit_mb=None)
    clock.now += 1.5
    for each in (memory, unlimited):
        each.look(_THIS)
        assert each.complaint == ""


def test_an_env_that_is_busy_with_the_same_step_for_too_long_is_late(clock: _Clock) -> None:
    deadlines = Deadlines(FaultPolicy(step_timeout_s=1.0))
    assert deadlines.late([3, 7, 0]) is None
    clock.now += 2.0
    assert deadlines.late([3, 7, 0]) == (2, "step", 1.0)


def test_many_short_steps_of_one_env_within_one_command_are_not_late(clock: _Clock) -> None:
    deadlines = Deadlines(FaultPolicy(step_timeout_s=1.0))
    for steps in range(10):
        clock.now += 0.9
        assert deadlines.late([3, steps, 0]) is None
