from __future__ import annotations

import _multiprocessing
import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rookery
from rookery.worker.wait import event as doorbell
from rookery.worker.wait.event import Doorbell


def _bell() -> Doorbell:
    bell = Doorbell()
    bell.forget_name()
    return bell


def _names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if f"rookery-{os.getpid()}-" in name}


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
    bell._expected_s = 2 * bell._longest_s
    assert not bell.wait(_alive, time.perf_counter() + 0.01)
    assert not yields


def test_after_a_late_yield_the_next_waits_block_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell = _bell()
    yields: list[int] = []

    def late() -> None:
        yields.append(1)
        time.sleep(2 * bell._late_s)
        bell.ring()

    monkeypatch.setattr(doorbell, "_company", doorbell._Company())
    monkeypatch.setattr(doorbell, "_yield_core", late)
    assert bell.wait(_alive)
    assert not bell.wait(_alive, time.perf_counter() + 0.001)
    assert len(yields) == 1


def test_quiet_waits_make_it_try_again() -> None:
    company = doorbell._Company()
    company.was_busy()
    company.was_busy()
    assert company.blocking_left == 3
    for _ in range(2 * doorbell._QUIET_WAITS):
        company.was_quiet()
    company.was_busy()
    assert company.blocking_left == 1


def test_waits_that_block_at_once_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, company, yields = _bell(), doorbell._Company(), list[int]()
    company.blocking_left = 2
    monkeypatch.setattr(doorbell, "_company", company)
    monkeypatch.setattr(doorbell, "_yield_core", lambda: yields.append(1))
    for blocks in (True, True, False):
        bell._expected_s = 0.0  # for on a busy machine waits are long, and long ones block anyway
        assert not bell.wait(_alive, time.perf_counter() + 0.001)
        assert bool(yields) != blocks
    assert company.blocking_left == 0


@pytest.mark.parametrize("is_crowded", [True, False])
def test_where_cores_are_few_a_wait_to_which_nobody_comes_blocks_now_and_then(
    monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    bell, blocked = doorbell.Doorbell(is_crowded), list[int]()
    bell.forget_name()
    tries = 0

    def nobody() -> None:
        nonlocal tries
        tries += 1
        if tries % 1000 == 0:
            bell.ring()

    def block(*_: Any) -> bool:
        blocked.append(tries)
        return True

    monkeypatch.setattr(doorbell, "_company", doorbell._Company())
    monkeypatch.setattr(doorbell, "_yield_core", nobody)
    monkeypatch.setattr(bell, "_given_s", float("inf"))  # however busy the machine is
    monkeypatch.setattr(bell, "_shortest_s", float("inf"))
    monkeypatch.setattr(bell, "_block", block)
    for _ in range(3):
        assert bell.wait(_alive)
    first = doorbell._LONELY_TRIES + 1
    assert blocked == ([first, 2 * first] if is_crowded else [])
    assert tries == (1000 if is_crowded else 3000)


def test_a_caller_with_work_of_its_own_goes_on_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, tries, clock = doorbell.Doorbell(is_crowded=True), 0, 0.0
    bell.forget_name()

    def nobody() -> None:
        nonlocal tries
        tries += 1
        if tries % 10 == 0:
            bell.ring()

    def now() -> float:
        nonlocal clock
        clock += 1e-6
        return clock

    monkeypatch.setattr(doorbell, "_company", doorbell._Company())
    monkeypatch.setattr(doorbell, "_yield_core", nobody)
    monkeypatch.setattr(doorbell, "time", SimpleNamespace(perf_counter=now))
    monkeypatch.setattr(bell, "_given_s", 10e-6)
    monkeypatch.setattr(bell, "_late_s", float("inf"))
    monkeypatch.setattr(bell, "_shortest_s", float("inf"))
    for work_s, blocks in ((0.0, True), (1e-3, False)):  # between waits of ten tries
        blocked: list[int] = []
        monkeypatch.setattr(bell, "_block", lambda *_, told=blocked: told.append(1) or True)
        bell._lonely, bell._lonely_since = 0, clock
        for _ in range(100):
            clock += work_s
            assert bell.wait(_alive)
        assert bool(blocked) == blocks


def test_a_wait_to_which_somebody_comes_goes_on_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, tries = doorbell.Doorbell(is_crowded=True), 0
    bell.forget_name()

    def somebody() -> None:
        nonlocal tries
        tries += 1
        if tries == 3 * doorbell._LONELY_TRIES:
            bell.ring()

    monkeypatch.setattr(doorbell, "_company", doorbell._Company())
    monkeypatch.setattr(doorbell, "_yield_core", somebody)
    monkeypatch.setattr(bell, "_given_s", -1.0)
    monkeypatch.setattr(bell, "_late_s", float("inf"))
    monkeypatch.setattr(bell, "_shortest_s", float("inf"))
    assert bell.wait(_alive)
    assert tries == 3 * doorbell._LONELY_TRIES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_its_name_is_gone_once_forgotten() -> None:
    before = _names()
    bell = Doorbell()
    assert len(_names() - before) == 1
    bell.forget_name()
    assert _names() == before


def test_ringing_again_leaves_one_ring() -> None:
    bell = _bell()
    for _ in range(4):
        bell.ring_again()
    assert [bell.take_ring() for _ in range(2)] == [True, False]


def test_steps_leave_no_rings_behind() -> None:
    with rookery.make_vec("CartPole-v1", 4, backend="process", num_workers=2) as venv:
        venv.reset(seed=0)
        bells = [backend.worker.bells for backend in venv._backends]
        for _ in range(50):
            venv.step_async(np.zeros(4, np.int64))
            while (venv._orders.asked != venv._orders.answered).any():
                time.sleep(1e-4)
            venv.step_wait()
        for bell in bells:
            # A worker answers before it rings, so the last ring may be on its way.
            assert bell.done._semaphore._get_value() <= 2
            assert bell.go._semaphore._get_value() <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_its_name_is_gone_once_nobody_has_it() -> None:
    before = _names()
    bell = Doorbell()
    assert _names() != before
    del bell
    assert _names() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_a_forked_copy_leaves_the_name_alone() -> None:
    bell = Doorbell()
    before = _names()
    pid = os.fork()
    if pid == 0:
        bell.forget_name()
        os._exit(0)
    os.waitpid(pid, 0)
    assert _names() == before
    bell.forget_name()


def test_whoever_comes_after_the_name_is_gone_leaves_without_a_word() -> None:
    bell = _bell()
    with pytest.raises(SystemExit):
        Doorbell.__new__(Doorbell).__setstate__(bell.__getstate__())


@pytest.mark.skipif(sys.platform == "win32", reason="semaphores of POSIX")
def test_a_bell_that_cannot_be_made_is_not_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    tracked: list[str] = []

    def no_semaphore(*_: object) -> None:
        raise OSError(28, "No space left on device")

    tracker = doorbell.resource_tracker
    monkeypatch.setattr(tracker, "register", lambda name, _: tracked.append(name))
    monkeypatch.setattr(tracker, "unregister", lambda name, _: tracked.remove(name))
    monkeypatch.setattr(doorbell._multiprocessing, "SemLock", no_semaphore)
    with pytest.raises(rookery.WorkerError, match="No space left"):
        Doorbell()
    assert tracked == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks where Linux has them")
def test_an_interruption_once_there_is_the_semaphore_leaves_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class Interrupted:
        def __init__(self, *args: object) -> None:
            made.append(_multiprocessing.SemLock(*args))
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(doorbell, "_multiprocessing", SimpleNamespace(
            SemLock=Interrupted, sem_unlink=_multiprocessing.sem_unlink
        ))  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            Doorbell()
    assert made and not _names()
