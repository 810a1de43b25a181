"""Doorbell: one process rings, another waits, and neither wastes what the other could use.

Waiting is where throughput goes. Blocking at once costs a wake-up; a plain busy loop takes the core
from whoever should ring. So a wait first tries again and again, yielding the core between tries,
for about as long as recent waits took; then it blocks. Two cases block at once: recent waits were
long (the envs wait themselves, and trying would burn a core for nothing), and a yield came back
late (somebody else wanted the core; yielding in turns with a busy process would collapse to a few
wake-ups per scheduler tick). See :mod:`rookery.worker.wait.backoff` for both limits.

And where there are as many workers as cores, a caller that mostly waits, and to whom nobody comes
when it yields, blocks now and then: two workers may share another core, and a scheduler leaves it
so for seconds, since trying looks like work. 8 CartPoles in 2 workers on 2 cores ran at 0.65 of
their speed then. A caller that works as long as it waits is best alone.
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
_MOST_RINGS = 32767  # that are remembered; macOS has no larger semaphores
_MAX_BACKOFF_WAITS = 4096
_QUIET_WAITS = 256  # without a late yield, before the back-off is halved
_LEARNING_RATE = 0.05
_LONELY_TRIES = 400  # of four steps of cheap envs, of which a wake-up is a small part
_LONELY_WITHIN = 120  # switches; whoever makes so many tries in a longer time does work of its own
_BLOCK_SLICE_S = 0.1  # how soon a waiter that blocks notices that nobody is left to ring
_TURN_S = 1e-3  # how long one of several bells is listened to


def _sleep_for_nothing() -> None:
    time.sleep(0)


# Not on Windows, and not on every POSIX system.
_yield_core: Callable[[], None] = getattr(os, "sched_yield", _sleep_for_nothing)


class _Company:
    """What this process has learned about others that want its cores.

    A late yield costs whole scheduler ticks (3-4 ms on Linux 6.18), a wait that blocks 50 us: it
    takes many quiet waits to outweigh one late yield. Beside two busy processes on two cores, 8
    CartPoles ran at 6k to 30k steps/s when each wait halved the back-off, and at 44k with blocking
    alone.
    """

    def __init__(self) -> None:
        self.backoff = 0  # waits that block at once after a late yield
        self._quiet = 0
        self.blocking_left = 0  # waits that are to block at once

    def was_busy(self) -> None:
        """A yield came back late."""
        self.backoff = min(2 * self.backoff + 1, _MAX_BACKOFF_WAITS)
        self.blocking_left = self.backoff
        self._quiet = 0

    def was_quiet(self) -> None:
        """A wait passed without a late yield."""
        self._quiet += 1
        if self._quiet == _QUIET_WAITS:
            self._quiet = 0
            self.backoff //= 2


_company = _Company()


_with_names: weakref.WeakSet[Doorbell] = weakref.WeakSet()  # made here; some have forgotten theirs
_keeps_names = True
_is_about_to_end = False


def keep_no_names() -> None:
    """Keep names no longer than until those have the bell that are started with it.

    For a process that may be ended together with the resource tracker, which would remove them.
    """
    global _keeps_names
    _keeps_names = False


def forget_all_names() -> None:
    """Remove the names of all bells that are made here: this process is about to be ended.

    Also of those that another thread is about to make; whoever was to have them does not start.
    """
    global _is_about_to_end
    _is_about_to_end = True
    for bell in list(_with_names):
        bell.forget_name()


class Doorbell:
    """A counting bell between two processes; no ring is lost, up to more than anybody counts.

    Its name in the system exists only until the other process has it, see :meth:`forget_name`, or
    until the bell is collected as garbage.

    Args:
        is_crowded: whether others may be waiting for the core of whoever waits for a ring.

    Attributes:
        ring: wakes the waiter, or the next one. It is the semaphore's own function, for it lies on
            the way of every step.

    Raises:
        WorkerError: when the system has no room for it; it leaves no name then.
    """

    def __init__(self, is_crowded: bool = False) -> None:
        reserve_standard_descriptors()  # else the resource tracker may listen at standard input
        name = f"/rookery-{os.getpid()}-{secrets.token_hex(6)}"
        if sys.platform != "win32":  # should this process be killed before the name is forgotten
            resource_tracker.register(name, "semaphore")
        try:
            semaphore = _multiprocessing.SemLock(_SEMAPHORE_KIND, 0, _MOST_RINGS, name, False)
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
        self.ring: Callable[[], None] = semaphore.release
        self._expected_s = 0.0
        self._late_s, self._shortest_s, self._longest_s, self._given_s = patience_here()
        self._lonely, self._most_lonely = 0, sys.maxsize  # tries in a row to which nobody came
        self._lonely_since = 0.0

    def ring_again(self) -> None:
        """Ring if no ring is left: for rings that nobody may ever hear, of which too many fail."""
        if self._semaphore._is_zero():
            self.ring()

    def take_ring(self) -> bool:
        """Take a ring if one has come; whether one had."""
        return self._acquire(False)

    def __getstate__(self) -> tuple[Any, ...]:
        semaphore = self._semaphore
        handle = semaphore.handle
        if sys.platform == "win32":
            popen = context.get_spawning_popen()
            assert popen is not None  # a bell travels with a process that is being started
            handle = popen.duplicate_for_child(handle)
        return (handle, semaphore.kind, semaphore.maxvalue, semaphore.name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        try:
            semaphore = _multiprocessing.SemLock._rebuild(*state)
        except FileNotFoundError:
            # The name is gone before this process could start: whoever started it gave up, or has
            # ended, and in any case knows. A traceback would only puzzle.
            raise SystemExit(ABANDONED_EXIT_CODE) from None
        self._adopt(semaphore)
        self._unlink = _nothing

    def forget_name(self) -> None:
        """Remove the bell's name, once; whoever has the bell keeps it, nobody new can get it."""
        self._unlink()

    def forget_rings(self) -> None:
        """Be silent; for when nobody is going to ring."""
        while self._acquire(False):
            continue

    def wait(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring.

        Args:
            anyone_left: asked now and then while blocked; False ends the wait.
            deadline: a ``time.perf_counter()`` time that ends the wait, if any.

        Returns:
            True if it rang, False if a ring can no longer come or the deadline passed.
        """
        # Little is called once it rang: whoever rings waits for this one to yield the core, and the
        # first call of each Python function after a wake-up costs a microsecond.
        if self._acquire(False):
            return True
        clock = time.perf_counter
        started = clock()
        expected_s = self._expected_s
        if expected_s > self._longest_s:
            rang = False
        elif _company.blocking_left:
            _company.blocking_left -= 1
            rang = False
        else:
            for_s = 4 * expected_s if 4 * expected_s > self._shortest_s else self._shortest_s
            rang = self._try(started, started + for_s)
        if not rang:
            rang = self._block(anyone_left, deadline)
        waited_s = clock() - started
        if waited_s > 2 * self._longest_s:
            waited_s = 2 * self._longest_s
        self._expected_s = expected_s + _LEARNING_RATE * (waited_s - expected_s)
        return rang

    def wait_asleep(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """What :meth:`wait` does, without trying first: for a process whose other threads work."""
        return self._block(anyone_left, deadline)

    def _try(self, now: float, end: float) -> bool:
        """Try until it rings, until a time, or until trying is of no use; whether it rang."""
        acquire, clock, rang = self._acquire, time.perf_counter, False
        late_s, given_s, lonely = self._late_s, self._given_s, self._lonely
        while now < end and not rang:
            _yield_core()
            rang, before, now = acquire(False), now, clock()
            lonely += 1
            if now - before > given_s:
                lonely, self._lonely_since = 0, now
                if now - before > late_s:
                    _company.was_busy()
                    break
            elif lonely > self._most_lonely:
                is_idle = now - self._lonely_since < _LONELY_WITHIN * given_s
                lonely, self._lonely_since = 0, now
                if is_idle:
                    break
        else:
            if rang and _company.backoff:
                _company.was_quiet()
        self._lonely = lonely
        return rang

    def _block(self, anyone_left: Callable[[], bool], deadline: float | None) -> bool:
        slice_s = _BLOCK_SLICE_S
        while True:
            if deadline is not None:
                slice_s = min(_BLOCK_SLICE_S, deadline - time.perf_counter())
            if self._acquire_within(max(slice_s, 0.0)):
                return True
            if slice_s <= 0:
                return False
            if not anyone_left():
                return self._acquire(False)  # it may have rung just before it left


class Arrivals:
    """What the caller of several workers listens to.

    The first workers share one bell. A semaphore has a name until the last process that is to have
    it has opened it, and names outlive a caller that is killed; so the name is forgotten as soon as
    the first workers have it, and a worker that comes later has a bell of its own, which is
    listened to by turns.

    Args:
        keeps_name: whether later workers share the bell, too: where they are to be expected.
    """

    def __init__(self, keeps_name: bool) -> None:
        self._bells = [Doorbell()]
        self._keeps_name = keeps_name and _keeps_names
        self._is_nameless = False

    def bell_for_next(self) -> tuple[Doorbell, bool]:
        """The bell of the next worker, and whether it is that worker's own."""
        if not self._is_nameless:
            return self._bells[0], False
        self._bells.append(Doorbell())
        return self._bells[-1], True

    def have_started(self) -> None:
        """Take in that the first workers have their bell."""
        if not self._keeps_name:
            self.forget_name()

    def forget_name(self) -> None:
        """Nobody new is to share the first bell."""
        self._is_nameless = True
        self._bells[0].forget_name()

    def ring(self) -> None:
        """Wake whoever waits."""
        self._bells[0].ring()

    def forget_rings(self) -> None:
        """Be silent."""
        for bell in self._bells:
            bell.forget_rings()

    def wait_asleep(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring of the first bell; see :meth:`Doorbell.wait_asleep`."""
        return self._bells[0].wait_asleep(anyone_left, deadline)

    def wait(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring of any bell; see :meth:`Doorbell.wait`."""
        if len(self._bells) == 1:
            return self._bells[0].wait(anyone_left, deadline)
        look = time.perf_counter() + _BLOCK_SLICE_S
        while True:
            for bell in self._bells:
                if bell.wait(_yes, time.perf_counter() + _TURN_S):
                    return True
            now = time.perf_counter()
            if deadline is not None and now >= deadline:
                return False
            if now >= look:
                look = now + _BLOCK_SLICE_S
                if not anyone_left():
                    return False


def _unlink(owner_pid: int, name: str) -> None:
    if sys.platform != "win32" and os.getpid() == owner_pid:  # a forked copy has no say in this
        # A cleaner, or the resource tracker, was first; or no name can be changed there any more.
        with suppress(OSError):
            _multiprocessing.sem_unlink(name)
        resource_tracker.unregister(name, "semaphore")


def _nothing() -> None:
    """A bell that came from elsewhere has no name that would be its own."""


def _yes() -> bool:
    return True
