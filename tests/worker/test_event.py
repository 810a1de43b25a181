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
from rookery.worker.wait import event as event_module
from rookery.worker.wait.event import ProcessEvent


def _event() -> ProcessEvent:
    event = ProcessEvent()
    event.forget_name()
    return event


def _names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if f"rookery-{os.getpid()}-" in name}


def _alive() -> bool:
    return True


def test_sets_are_counted_and_never_lost() -> None:
    event = _event()
    for _ in range(3):
        event.set()
    assert [event.wait(_alive, time.perf_counter()) for _ in range(4)] == [True, True, True, False]


def test_a_wait_ends_when_another_thread_sets_the_event() -> None:
    event = _event()
    thread = threading.Timer(0.05, event.set)
    thread.start()
    assert event.wait(_alive)
    thread.join()


def test_a_wait_ends_when_keep_waiting_returns_false() -> None:
    event = _event()
    assert not event.wait(lambda: False)


def test_a_set_just_before_the_wait_ends_is_noticed() -> None:
    event = _event()

    def left() -> bool:
        event.set()
        return False

    assert event.wait(left)


def test_after_long_waits_it_blocks_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = _event()
    yields: list[int] = []
    monkeypatch.setattr(event_module, "_yield_core", lambda: yields.append(1))
    event._expected_s = 2 * event._longest_s
    assert not event.wait(_alive, time.perf_counter() + 0.01)
    assert not yields


def test_after_a_late_yield_the_next_waits_block_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = _event()
    yields: list[int] = []

    def late() -> None:
        yields.append(1)
        time.sleep(2 * event._late_s)
        event.set()

    monkeypatch.setattr(event_module, "_contention", event_module._Contention())
    monkeypatch.setattr(event_module, "_yield_core", late)
    assert event.wait(_alive)
    assert not event.wait(_alive, time.perf_counter() + 0.001)
    assert len(yields) == 1


def test_prompt_waits_reduce_the_back_off() -> None:
    contention = event_module._Contention()
    contention.was_late()
    contention.was_late()
    assert contention.blocking_left == 3
    for _ in range(2 * event_module._PROMPT_WAITS):
        contention.was_prompt()
    contention.was_late()
    assert contention.blocking_left == 1


def test_waits_that_block_at_once_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    event, contention, yields = _event(), event_module._Contention(), list[int]()
    contention.blocking_left = 2
    monkeypatch.setattr(event_module, "_contention", contention)
    monkeypatch.setattr(event_module, "_yield_core", lambda: yields.append(1))
    for blocks in (True, True, False):
        event._expected_s = 0.0  # for on a busy machine waits are long, and long ones block anyway
        assert not event.wait(_alive, time.perf_counter() + 0.001)
        assert bool(yields) != blocks
    assert contention.blocking_left == 0


@pytest.mark.parametrize("is_crowded", [True, False])
def test_with_few_cores_a_wait_with_unused_yields_blocks_now_and_then(
    monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    event, blocked = event_module.ProcessEvent(is_crowded), list[int]()
    event.forget_name()
    tries = 0

    def nobody() -> None:
        nonlocal tries
        tries += 1
        if tries % 1000 == 0:
            event.set()

    def block(*_: Any) -> bool:
        blocked.append(tries)
        return True

    monkeypatch.setattr(event_module, "_contention", event_module._Contention())
    monkeypatch.setattr(event_module, "_yield_core", nobody)
    monkeypatch.setattr(event, "_given_s", float("inf"))  # however busy the machine is
    monkeypatch.setattr(event, "_shortest_s", float("inf"))
    monkeypatch.setattr(event, "wait_asleep", block)
    for _ in range(3):
        assert event.wait(_alive)
    first = event_module._LONELY_TRIES + 1
    assert blocked == ([first, 2 * first] if is_crowded else [])
    assert tries == (1000 if is_crowded else 3000)


def test_a_caller_that_works_between_waits_continues_trying(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event, tries, clock = event_module.ProcessEvent(is_crowded=True), 0, 0.0
    event.forget_name()

    def nobody() -> None:
        nonlocal tries
        tries += 1
        if tries % 10 == 0:
            event.set()

    def now() -> float:
        nonlocal clock
        clock += 1e-6
        return clock

    monkeypatch.setattr(event_module, "_contention", event_module._Contention())
    monkeypatch.setattr(event_module, "_yield_core", nobody)
    monkeypatch.setattr(event_module, "time", SimpleNamespace(perf_counter=now))
    monkeypatch.setattr(event, "_given_s", 10e-6)
    monkeypatch.setattr(event, "_late_s", float("inf"))
    monkeypatch.setattr(event, "_shortest_s", float("inf"))
    for work_s, blocks in ((0.0, True), (1e-3, False)):  # between waits of ten tries
        blocked: list[int] = []
        monkeypatch.setattr(event, "wait_asleep", lambda *_, told=blocked: told.append(1) or True)
        event._lonely, event._lonely_since = 0, clock
        for _ in range(100):
            clock += work_s
            assert event.wait(_alive)
        assert bool(blocked) == blocks


def test_a_wait_with_used_yields_continues_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    event, tries = event_module.ProcessEvent(is_crowded=True), 0
    event.forget_name()

    def somebody() -> None:
        nonlocal tries
        tries += 1
        if tries == 3 * event_module._LONELY_TRIES:
            event.set()

    monkeypatch.setattr(event_module, "_contention", event_module._Contention())
    monkeypatch.setattr(event_module, "_yield_core", somebody)
    monkeypatch.setattr(event, "_given_s", -1.0)
    monkeypatch.setattr(event, "_late_s", float("inf"))
    monkeypatch.setattr(event, "_shortest_s", float("inf"))
    assert event.wait(_alive)
    assert tries == 3 * event_module._LONELY_TRIES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_forget_name_removes_the_name() -> None:
    before = _names()
    event = ProcessEvent()
    assert len(_names() - before) == 1
    event.forget_name()
    assert _names() == before


def test_set_if_clear_sets_the_event_at_most_once() -> None:
    event = _event()
    for _ in range(4):
        event.set_if_clear()
    assert [event.take() for _ in range(2)] == [True, False]


def test_steps_leave_events_clear() -> None:
    with rookery.make_vec("CartPole-v1", 4, backend="process", num_workers=2) as venv:
        venv.reset(seed=0)
        events = [backend.worker.events for backend in venv._backends]
        for _ in range(50):
            venv.step_async(np.zeros(4, np.int64))
            while (venv._orders.asked != venv._orders.answered).any():
                time.sleep(1e-4)
            venv.step_wait()
        for event in events:
            # A worker answers before it sets the event, so the last set may come later.
            assert event.done._semaphore._get_value() <= 2
            assert event.go._semaphore._get_value() <= 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_garbage_collection_removes_the_name() -> None:
    before = _names()
    event = ProcessEvent()
    assert _names() != before
    del event
    assert _names() == before


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_a_forked_copy_does_not_remove_the_name() -> None:
    event = ProcessEvent()
    before = _names()
    pid = os.fork()
    if pid == 0:
        event.forget_name()
        os._exit(0)
    os.waitpid(pid, 0)
    assert _names() == before
    event.forget_name()


def test_a_process_that_opens_the_event_after_its_name_was_removed_exits_silently() -> None:
    event = _event()
    with pytest.raises(SystemExit):
        ProcessEvent.__new__(ProcessEvent).__setstate__(event.__getstate__())


@pytest.mark.skipif(sys.platform == "win32", reason="semaphores of POSIX")
def test_an_event_that_cannot_be_made_is_not_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    tracked: list[str] = []

    def no_semaphore(*_: object) -> None:
        raise OSError(28, "No space left on device")

    tracker = event_module.resource_tracker
    monkeypatch.setattr(tracker, "register", lambda name, _: tracked.append(name))
    monkeypatch.setattr(tracker, "unregister", lambda name, _: tracked.remove(name))
    monkeypatch.setattr(event_module._multiprocessing, "SemLock", no_semaphore)
    with pytest.raises(rookery.WorkerError, match="No space left"):
        ProcessEvent()
    assert tracked == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks where Linux has them")
def test_an_interruption_after_the_semaphore_is_made_leaves_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class Interrupted:
        def __init__(self, *args: object) -> None:
            made.append(_multiprocessing.SemLock(*args))
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(event_module, "_multiprocessing", SimpleNamespace(
            SemLock=Interrupted, sem_unlink=_multiprocessing.sem_unlink
        ))  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            ProcessEvent()
    assert made and not _names()
