"""ProcessEvent: one process sets it, another waits for it, and neither wastes a core.

Waiting costs the most throughput. Blocking at once costs a wake-up; a plain busy loop takes the
core from the process that should set the event. So a wait first tries again and again, yielding the
core between tries, for about as long as recent waits took; then it blocks. It blocks at once in two
cases:

- Recent waits were long: the envs wait themselves, and trying would burn a core for nothing.
- A yield came back late: another process wanted the core. Yielding in turns with a busy process
  would collapse to a few wake-ups per scheduler tick.

For both limits, see :mod:`rookery.worker.wait.backoff`.

With as many workers as cores, a caller that mostly waits, and yields to no other process, blocks
now and then. Otherwise two workers may share another core, and the scheduler leaves it so
for seconds because trying looks like work. 8 CartPoles in 2 workers on 2 cores then ran at 0.65 of
their speed. A caller that works as long as it waits needs its core alone.
"""

from __future__ import annotations

import _multiprocessing
import os
import secrets
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import context, resource_tracker
from typing import Any

from rookery.worker.start.limits import (
    ABANDONED_EXIT_CODE,
    reserve_standard_descriptors,
    start_failed,
)
from rookery.worker.wait.backoff import patience_here
from rookery.worker.wait.semaphores import acquire_within

_SEMAPHORE_KIND = 1
_MOST_SETS = 32767  # the most that a semaphore counts on macOS
_MAX_BACKOFF_WAITS = 4096
_PROMPT_WAITS = 256  # waits without a late yield, before the back-off is halved
_LEARNING_RATE = 0.05
_LONELY_TRIES = 400  # as long as four steps of cheap envs; a wake-up is a small part of that
_LONELY_WITHIN = 120  # times `given_s`; a caller that takes longer for them works in between
_BLOCK_SLICE_S = 0.1  # how often a blocking wait asks whether to continue
_TURN_S = 1e-3  # how long one of several events is waited for in turn


# Not on Windows, and not on every POSIX system.
_yield_core: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class _Contention:
    """The back-off of this process, learned from yields that other processes made late.

    A late yield costs whole scheduler ticks (3-4 ms on Linux 6.18), a wait that blocks 50 us. So
    many prompt waits are needed to outweigh one late yield. Beside two busy processes on two cores,
    8 CartPoles ran at 6k to 30k steps/s when each wait halved the back-off, and at 44k with
    blocking alone.
    """

    def __init__(self) -> None:
        self.backoff = 0  # waits that block at once after a late yield
        self._prompt = 0
        self.blocking_left = 0  # number of the next waits that block at once

    def was_late(self) -> None:
        """Double the back-off, because a yield came back late."""
        self.backoff = min(2 * self.backoff + 1, _MAX_BACKOFF_WAITS)
        self.blocking_left = self.backoff
        self._prompt = 0

    def was_prompt(self) -> None:
        """Count a wait without a late yield."""
        self._prompt += 1
        if self._prompt == _PROMPT_WAITS:
            self._prompt = 0
            self.backoff //= 2


_contention = _Contention()


_with_names: weakref.WeakSet[ProcessEvent] = weakref.WeakSet()  # made in this process
_keeps_names = True
_is_about_to_end = False


def keep_no_names() -> None:
    """Remove the name of each event as soon as its first processes have opened it.

    For a process that may be killed together with the resource tracker, which removes names.
    """
    global _keeps_names
    _keeps_names = False


def forget_all_names() -> None:
    """Remove the names of all events of this process, which is about to be killed.

    Events that another thread is making lose their names, too; their processes do not start.
    """
    global _is_about_to_end
    _is_about_to_end = True
    for event in list(_with_names):
        event.forget_name()


class ProcessEvent:
    """An event between two processes that counts how often it was set.

    Its name in the system exists until the other process has opened it (see :meth:`forget_name`),
    or until the event is garbage-collected.

    Args:
        is_crowded: whether other processes may need the core of the process that waits.

    Attributes:
        set: wakes the waiter, or the next one. It is the semaphore's function itself, because every
            step calls it.

    Raises:
        WorkerError: if the system has no room for it. No name is left then.
    """

    def __init__(self, is_crowded: bool = False) -> None:
        reserve_standard_descriptors()  # else the resource tracker may listen at standard input
        name = f"/rookery-{os.getpid()}-{secrets.token_hex(6)}"
        if sys.platform != "win32":  # should this process be killed before the name is forgotten
            resource_tracker.register(name, "semaphore")
        try:
            semaphore = _multiprocessing.SemLock(_SEMAPHORE_KIND, 0, _MOST_SETS, name, False)
        except BaseException as error:  # or an interruption that came once there was the semaphore
            _unlink(os.getpid(), name)
            if isinstance(error, OSError):
                raise start_failed(error) from error
            raise
        self._adopt(semaphore)
        self._most_lonely = _LONELY_TRIES if is_crowded else sys.maxsize
        self._unlink: Callable[[], Any] = weakref.finalize(self, _unlink, os.getpid(), name)
        _with_names.add(self)
        if _is_about_to_end:
            self.forget_name()

    def _adopt(self, semaphore: Any) -> None:
        self._semaphore = semaphore
        self._acquire: Callable[..., bool] = semaphore.acquire
        self._acquire_within = acquire_within(semaphore)
        self.set: Callable[[], None] = semaphore.release
        self._expected_s = 0.0
        self._late_s, self._shortest_s, self._longest_s, self._given_s = patience_here()
        self._lonely, self._most_lonely = 0, sys.maxsize  # tries in a row to which nobody came
        self._lonely_since = 0.0

    def set_if_clear(self) -> None:
        """Set the event unless it is set already, so that unused sets do not add up."""
        if self._semaphore._is_zero():
            self.set()

    def take(self) -> bool:
        """Reset one set, without waiting. Return whether the event was set."""
        return self._acquire(False)

    def __getstate__(self) -> tuple[Any, ...]:
        semaphore = self._semaphore
        handle = semaphore.handle
        if sys.platform == "win32":
            popen = context.get_spawning_popen()
            assert popen is not None  # events are pickled only for a process that starts
            handle = popen.duplicate_for_child(handle)
        return (handle, semaphore.kind, semaphore.maxvalue, semaphore.name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        try:
            semaphore = _multiprocessing.SemLock._rebuild(*state)
        except FileNotFoundError:
            # The name was removed before this process started, because the caller gave up or has
            # exited. A traceback would only confuse.
            raise SystemExit(ABANDONED_EXIT_CODE) from None
        self._adopt(semaphore)
        self._unlink = lambda: None  # the process that made the event removes its name

    def forget_name(self) -> None:
        """Remove the event's name. Processes that have opened the event keep it."""
        self._unlink()

    def clear(self) -> None:
        """Reset the event completely, while no process sets it."""
        while self._acquire(False):
            continue

    def wait(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until the event is set, and reset one set.

        Args:
            keep_waiting: called now and then while blocked; False ends the wait.
            deadline: a ``time.perf_counter()`` time that ends the wait, if any.

        Returns:
            True if the event was set; False if ``keep_waiting`` or the deadline ended the wait.
        """
        # Little is called after the event was set: the other process needs this core, and the first
        # call of each Python function after a wake-up costs a microsecond.
        if self._acquire(False):
            return True
        clock = time.perf_counter
        started = clock()
        expected_s = self._expected_s
        if expected_s > self._longest_s:
            was_set = False
        elif _contention.blocking_left:
            _contention.blocking_left -= 1
            was_set = False
        else:
            for_s = 4 * expected_s if 4 * expected_s > self._shortest_s else self._shortest_s
            was_set = self._try(started, started + for_s)
        if not was_set:
            was_set = self.wait_asleep(keep_waiting, deadline)
        waited_s = clock() - started
        if waited_s > 2 * self._longest_s:
            waited_s = 2 * self._longest_s
        self._expected_s = expected_s + _LEARNING_RATE * (waited_s - expected_s)
        return was_set

    def _try(self, now: float, end: float) -> bool:
        """Try until the event is set, until a time, or until trying is useless. Return if set."""
        acquire, clock, was_set = self._acquire, time.perf_counter, False
        late_s, given_s, lonely = self._late_s, self._given_s, self._lonely
        while now < end and not was_set:
            _yield_core()
            was_set, before, now = acquire(False), now, clock()
            lonely += 1
            if now - before > given_s:
                lonely, self._lonely_since = 0, now
                if now - before > late_s:
                    _contention.was_late()
                    break
            elif lonely > self._most_lonely:
                is_idle = now - self._lonely_since < _LONELY_WITHIN * given_s
                lonely, self._lonely_since = 0, now
                if is_idle:
                    break
        else:
            if was_set and _contention.backoff:
                _contention.was_prompt()
        self._lonely = lonely
        return was_set

    def wait_asleep(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait like :meth:`wait`, but block at once, because other threads of this process work."""
        slice_s = _BLOCK_SLICE_S
        while True:
            if deadline is not None:
                slice_s = min(_BLOCK_SLICE_S, deadline - time.perf_counter())
            if self._acquire_within(max(slice_s, 0.0)):
                return True
            if slice_s <= 0:
                return False
            if not keep_waiting():
                return self._acquire(False)  # it may have been set just before


class Arrivals:
    """The events of several workers, for a caller that waits for any of them.

    The first workers share one event. A semaphore needs a name until the last process has opened
    it, and the name outlives a caller that is killed. So the name is removed as soon as the first
    workers have opened the event. Each later worker has another event, and the caller waits for all
    events in turn.

    Args:
        keeps_name: whether later workers share the first event. For callers that expect them.
    """

    def __init__(self, keeps_name: bool) -> None:
        self._events = [ProcessEvent()]
        self._keeps_name = keeps_name and _keeps_names
        self._is_nameless = False

    def event_for_next(self) -> tuple[ProcessEvent, bool]:
        """Return the event of the next worker, and whether no other worker shares it."""
        if not self._is_nameless:
            return self._events[0], False
        self._events.append(ProcessEvent())
        return self._events[-1], True

    def have_started(self) -> None:
        """Remove the name of the first event after its workers have opened it, if allowed."""
        if not self._keeps_name:
            self.forget_name()

    def forget_name(self) -> None:
        """Remove the name of the first event. Later workers do not share it."""
        self._is_nameless = True
        self._events[0].forget_name()

    def set(self) -> None:
        """Wake the waiter."""
        self._events[0].set()

    def clear(self) -> None:
        """Reset all events."""
        for event in self._events:
            event.clear()

    def wait_asleep(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for the first event; see :meth:`ProcessEvent.wait_asleep`."""
        return self._events[0].wait_asleep(keep_waiting, deadline)

    def wait(self, keep_waiting: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for any of the events; see :meth:`ProcessEvent.wait`."""
        if len(self._events) == 1:
            return self._events[0].wait(keep_waiting, deadline)
        look = time.perf_counter() + _BLOCK_SLICE_S
        while True:
            for event in self._events:
                if event.wait(lambda: True, time.perf_counter() + _TURN_S):
                    return True
            now = time.perf_counter()
            if deadline is not None and now >= deadline:
                return False
            if now >= look:
                look = now + _BLOCK_SLICE_S
                if not keep_waiting():
                    return False


def _unlink(owner_pid: int, name: str) -> None:
    if sys.platform != "win32" and os.getpid() == owner_pid:  # a forked copy must not do it
        # A cleaner or the resource tracker was faster, or names can no longer be changed.
        with suppress(OSError):
            _multiprocessing.sem_unlink(name)
        resource_tracker.unregister(name, "semaphore")
