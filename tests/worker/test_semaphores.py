"""Waits for semaphores on a system without time-outs for them."""

from __future__ import annotations

import _multiprocessing
import secrets
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rookery.worker.wait.semaphores import Ticker

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="semaphores of POSIX")


def _semaphore() -> Any:
    return _multiprocessing.SemLock(1, 0, 100, f"/rookery-test-{secrets.token_hex(4)}", True)


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    yield Ticker()
    for thread in threading.enumerate():
        if thread.name == "rookery-ticks":
            thread.join()


def test_a_tick_ends_a_wait_without_acquiring(ticker: Ticker) -> None:
    semaphore = _semaphore()
    assert not ticker.acquire(semaphore, 0.1)
    assert not ticker.acquire(semaphore, 1e9)
    assert semaphore._is_zero()


def test_a_short_wait_takes_no_thread(ticker: Ticker) -> None:
    semaphore = _semaphore()
    assert not ticker.acquire(semaphore, 0.001)
    assert "rookery-ticks" not in [thread.name for thread in threading.enumerate()]


def test_a_release_ends_a_wait(ticker: Ticker) -> None:
    semaphore = _semaphore()
    threading.Timer(0.0, semaphore.release).start()
    while not ticker.acquire(semaphore, 1.0):
        pass
    assert semaphore._is_zero()


def test_ticks_neither_lose_nor_add_releases(ticker: Ticker) -> None:
    semaphore = _semaphore()
    taken: list[bool] = []

    def wait() -> None:
        while len(taken) < 20:
            if ticker.acquire(semaphore, 1.0):
                taken.append(True)

    waiter = threading.Thread(target=wait)
    waiter.start()
    for _ in range(20):
        semaphore.release()
    waiter.join()
    assert semaphore._is_zero()


def test_two_wait_at_once(ticker: Ticker) -> None:
    semaphore = _semaphore()
    other = _semaphore()
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(ticker.acquire(other, 1.0)))
    waiter.start()
    assert not ticker.acquire(semaphore, 1.0)
    waiter.join()
    assert results == [False]


def test_where_no_thread_can_be_started_the_system_ends_the_wait(
    ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    semaphore = _semaphore()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert not ticker.acquire(semaphore, 0.11)
