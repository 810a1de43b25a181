from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from rookery.worker import doorbell
from rookery.worker.doorbell import Doorbell


def _bell() -> Doorbell:
    bell = Doorbell()
    bell.forget_name()
    return bell


def _alive() -> bool:
    return True


def test_rings_are_counted_and_never_lost() -> None:
    bell = _bell()
    for _ in range(3):
        bell.ring()
    assert [bell.wait(_alive, time.perf_counter()) for _ in range(4)] == [True, True, True, False]


def test_a_wait_ends_with_a_ring_from_elsewhere() -> None:
    bell = _bell()
    thread = threading.Timer(0.05, bell.ring)
    thread.start()
    assert bell.wait(_alive)
    thread.join()


def test_a_wait_ends_when_nobody_is_left_to_ring() -> None:
    bell = _bell()
    assert not bell.wait(lambda: False)


def test_a_last_ring_is_heard_even_if_the_ringer_is_gone() -> None:
    bell = _bell()

    def left() -> bool:
        bell.ring()
        return False

    assert bell.wait(left)


def test_after_long_waits_it_blocks_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell = _bell()
    yields: list[int] = []
    monkeypatch.setattr(doorbell, "_yield_core", lambda: yields.append(1))
    bell._expected_s = 2 * doorbell._MAX_SPIN_S
    assert not bell.wait(_alive, time.perf_counter() + 0.01)
    assert not yields


def test_after_a_late_yield_the_next_waits_block_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell = _bell()
    yields: list[int] = []

    def late() -> None:
        yields.append(1)
        time.sleep(2 * doorbell._LATE_YIELD_S)
        bell.ring()

    monkeypatch.setattr(doorbell, "_company", doorbell._Company())
    monkeypatch.setattr(doorbell, "_yield_core", late)
    assert bell.wait(_alive)
    assert not bell.wait(_alive, time.perf_counter() + 0.001)
    assert len(yields) == 1


def test_quiet_waits_make_it_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    company = doorbell._Company()
    company.was_busy()
    company.was_busy()
    assert [company.wants_the_core() for _ in range(4)] == [True, True, True, False]
    for _ in range(2 * doorbell._QUIET_WAITS):
        company.was_quiet()
    company.was_busy()
    assert [company.wants_the_core() for _ in range(2)] == [True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_its_name_is_gone_once_forgotten() -> None:
    def names() -> set[str]:
        """Those that this process gave, for others come and go."""
        return {name for name in os.listdir("/dev/shm") if f"rookery-{os.getpid()}-" in name}

    before = names()
    bell = Doorbell()
    assert len(names() - before) == 1
    bell.forget_name()
    assert names() == before
