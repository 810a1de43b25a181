"""What counts as late."""

from __future__ import annotations

import pytest

from rookery.worker import deadlines
from rookery.worker.deadlines import Deadlines
from rookery.worker.faults import FaultPolicy


class Clock:
    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(deadlines, "time", clock)
    return clock


def test_an_env_that_is_busy_with_the_same_step_for_too_long_is_late(clock):
    watch = Deadlines(FaultPolicy(step_timeout_s=1.0))
    assert watch.late([3, 7, 0]) is None
    clock.now = 2.0
    assert watch.late([3, 7, 0]) == (2, "step", 1.0)


def test_many_short_steps_of_one_env_within_one_command_are_not_late(clock):
    watch = Deadlines(FaultPolicy(step_timeout_s=1.0))
    for steps in range(10):
        clock.now += 0.9
        assert watch.late([3, steps, 0]) is None
