"""Patience: how long to try before blocking, in terms of what this machine's own calls cost.

What is gained by trying is a wake-up; what is lost is the core, for a scheduler's tick, if somebody
else wants it. Both differ between machines by more than ten times, so nothing here is a number of
microseconds: a *try* (call the system, look, read the clock) and a *wake-up* of a thread that
sleeps are measured, once in a process, and all limits are multiples of them.

It is measured when a process gets its first bell, and often others compute just then: workers that
import, or threads of a library that spin for work. So no yield is timed, since that gives them the
core for a tick: 8 Pongs each in 2 workers on 2 cores ran at 0.6 of their speed beside a caller that
took a tick for the cost of a try, and so never slept.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import NamedTuple

_TRIES = 60  # that are measured
_WAKE_UPS = 3
_SLEEP_S = 2e-4  # before each wake-up, for the sleeper's core to go idle
_LONGEST_MEASURING_S = 5e-3  # a machine that is busy is judged by what it did until then
_MOST_TRIES = 200  # in a wake-up; one that took longer had to wait for somebody else's core

if sys.platform == "win32":  # asking for the parent takes a list of all processes there

    def _call_system() -> None:
        time.sleep(0)

else:
    _call_system = os.getppid

# A late yield is one that took as long as hundreds of usual ones: at 60 tries the test fires on
# ordinary switches between a caller and its workers.
_LATE_TRIES, _LATE_WAKE_UPS = 200, 2
_SHORTEST_TRIES, _SHORTEST_WAKE_UPS = 200, 2
_LONGEST_TRIES, _LONGEST_WAKE_UPS = 2000, 20  # of a longer wait a wake-up is less than 5 %
_GIVEN_TRIES = 10  # a yield to nobody takes one, a switch to somebody and back far more


class Costs(NamedTuple):
    """What waiting costs on a machine.

    Attributes:
        try_s: seconds for a try that nobody disturbs.
        wake_up_s: seconds until a thread that sleeps is running, once it was woken.
    """

    try_s: float
    wake_up_s: float


class Patience(NamedTuple):
    """How long a wait tries before it blocks.

    Attributes:
        late_s: a yield that takes longer was late: somebody else had the core.
        shortest_s: seconds for which to try at least.
        longest_s: waits that are expected to take longer block at once.
        given_s: a yield that takes longer gave the core to somebody.
    """

    late_s: float
    shortest_s: float
    longest_s: float
    given_s: float


def patience(costs: Costs) -> Patience:
    """How long to try on a machine with these costs."""
    return Patience(
        late_s=max(_LATE_TRIES * costs.try_s, _LATE_WAKE_UPS * costs.wake_up_s),
        shortest_s=max(_SHORTEST_TRIES * costs.try_s, _SHORTEST_WAKE_UPS * costs.wake_up_s),
        longest_s=max(_LONGEST_TRIES * costs.try_s, _LONGEST_WAKE_UPS * costs.wake_up_s),
        given_s=_GIVEN_TRIES * costs.try_s,
    )


@functools.cache
def patience_here() -> Patience:
    """How long to try on this machine; measured once in a process, for milliseconds at most."""
    return patience(measure_costs())


def measure_costs() -> Costs:
    """Measure what waiting costs here. The least of all values counts: others only add to it."""
    limit = time.perf_counter() + _LONGEST_MEASURING_S
    try_s = _measure_try(limit)
    return Costs(try_s, min(_measure_wake_up(limit), _MOST_TRIES * try_s))


def _measure_try(limit: float) -> float:
    """Seconds for a try; a few in a row are timed together, for clocks tick coarsely."""
    lock, clock, in_a_row = threading.Lock(), time.perf_counter, 10
    lock.acquire()
    least = float("inf")
    for _ in range(_TRIES // in_a_row):
        started = now = clock()
        for _ in range(in_a_row):
            _call_system()
            lock.acquire(False)
            now = clock()
        least = min(least, (now - started) / in_a_row)
        if now > limit:
            break
    return least


def _measure_wake_up(limit: float) -> float:
    """Seconds from freeing a lock until a thread that sleeps on it runs."""
    go, done, woken_at = threading.Lock(), threading.Lock(), [0.0]
    ends = False

    def sleeper() -> None:
        while True:
            go.acquire()
            woken_at[0] = time.perf_counter()
            is_last = ends  # once it is done, the next round may have begun
            done.release()
            if is_last:
                return

    go.acquire()
    done.acquire()
    thread = threading.Thread(target=sleeper, name="rookery-patience", daemon=True)
    thread.start()
    least = float("inf")
    for i in range(_WAKE_UPS):
        time.sleep(_SLEEP_S)
        started = time.perf_counter()
        ends = i == _WAKE_UPS - 1 or started > limit
        go.release()
        done.acquire()
        least = min(least, woken_at[0] - started)
        if ends:
            break
    thread.join()
    return least
