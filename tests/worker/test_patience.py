"""How long a wait tries: multiples of costs that are measured on the machine."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest

from rookery.worker.wait import backoff as module
from rookery.worker.wait import event as event_module
from rookery.worker.wait.backoff import Costs, measure_costs, patience

FAST = Costs(try_s=0.5e-6, wake_up_s=10e-6)


def test_a_processor_five_times_slower_is_given_five_times_the_time() -> None:
    slow = Costs(*(5 * cost for cost in FAST))
    assert patience(slow) == pytest.approx([5 * limit for limit in patience(FAST)])


def test_slow_wake_ups_are_worth_trying_longer() -> None:
    slow = patience(FAST._replace(wake_up_s=2e-3))
    assert slow.shortest_s > 2e-3
    assert slow.longest_s > 10 * 2e-3
    assert slow.late_s > 2e-3  # a yield may have had somebody woken


@pytest.mark.parametrize("try_s", [1e-7, 1e-6, 1e-4])
@pytest.mark.parametrize("wake_up_s", [1e-6, 1e-4, 1e-2])
def test_the_limits_are_in_order(try_s: float, wake_up_s: float) -> None:
    limits = patience(Costs(try_s, wake_up_s))
    assert 10 * try_s < limits.late_s
    assert limits.shortest_s < limits.longest_s / 5


def test_measuring_leaves_no_thread() -> None:
    before = threading.active_count()
    costs = measure_costs()
    assert 0 < costs.try_s < costs.wake_up_s < float("inf")
    assert threading.active_count() == before


def test_waiting_for_a_core_does_not_count_as_the_cost_of_a_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_measure_wake_up", lambda limit: 4e-3)
    monkeypatch.setattr(module, "_measure_try", lambda limit: 0.5e-6)
    limits = patience(measure_costs())
    assert limits.late_s < 4e-3  # a tick, which is how long a core is lost
    assert limits.shortest_s < 4e-3


def test_measuring_does_not_yield_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy process would keep the core for a tick, which is not the cost of a try."""

    def fails() -> None:
        raise AssertionError("yielded")

    monkeypatch.setattr(os, "sched_yield", fails, raising=False)
    monkeypatch.setattr(event_module, "_yield_core", fails)
    measure_costs()


def test_a_sleeper_that_is_slow_to_sleep_again_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that releases a lock may lose the core at once, for longer than a round."""

    class SlowLock:
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.acquire = self._lock.acquire

        def release(self) -> None:
            self._lock.release()
            if threading.current_thread() is not threading.main_thread():
                time.sleep(0.05)

    slow = SimpleNamespace(Lock=SlowLock, Thread=threading.Thread)
    monkeypatch.setattr(module, "threading", slow)
    assert module._measure_wake_up(time.perf_counter() + 60) > 0
