from __future__ import annotations

import signal
import sys
import threading
import time

import pytest

from rookery.worker.wait.thread_event import ThreadEvent


def _alive() -> bool:
    return True


def test_setting_twice_wakes_once() -> None:
    event = ThreadEvent()
    for _ in range(3):
        event.set()
    assert [event.wait(_alive, time.perf_counter()) for _ in range(2)] == [True, False]


def test_a_cleared_event_is_not_set() -> None:
    event = ThreadEvent()
    event.set()
    event.clear()
    event.clear()
    assert not event.wait(_alive, time.perf_counter())


def test_a_wait_ends_when_keep_waiting_returns_false() -> None:
    assert not ThreadEvent().wait(lambda: False)


def test_a_set_just_before_the_wait_ends_is_noticed() -> None:
    event = ThreadEvent()

    def left() -> bool:
        event.set()
        return False

    assert event.wait(left)


def test_two_threads_that_take_turns_never_lose_a_wake_up() -> None:
    there, back = ThreadEvent(), ThreadEvent()
    count = 2000

    def answer() -> None:
        for _ in range(count):
            assert there.wait(_alive)
            back.set()

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(count):
        there.set()
        assert back.wait(_alive)
    thread.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
@pytest.mark.skipif("coverage" in sys.modules, reason="would interrupt coverage with its lock held")
def test_an_interrupt_anywhere_leaves_it_usable() -> None:
    there, back = ThreadEvent(), ThreadEvent()
    asked = answered = interrupts = 0
    over = False

    def answer() -> None:
        nonlocal answered
        while not over:
            if there.wait(_alive, time.perf_counter() + 0.5):
                answered = asked
                back.set()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    thread = threading.Thread(target=answer)
    thread.start()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupts < 200:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4)
                while True:
                    asked += 1
                    there.set()
                    while answered < asked:
                        back.wait(_alive)
            except KeyboardInterrupt:
                interrupts += 1
                while answered < asked:  # an event that was set before the interrupt is still set
                    there.set()
                    assert back.wait(_alive)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        over = True
        thread.join()
