"""Patience: how long a wait tries before it blocks, measured on this machine.

Trying saves a wake-up. It costs the core for a scheduler tick if another process wants it. Both
differ between machines by a factor of more than ten. So two costs are measured once per process,
and all limits are multiples of them: a *try* (a system call, a look at the semaphore, and reading
the clock) and the *wake-up* of a sleeping thread.

They are measured when a process gets its first event. Other processes often compute at that time:
workers that import modules, or threads of a library that spin for work. So no yield is timed,
because it would give them the core for a tick. 8 Pongs each in 2 workers on 2 cores ran at 0.6 of
their speed beside a caller that took a tick for the cost of a try, and therefore never slept.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import NamedTuple

_TRIES = 60  # number of tries that are measured
_WAKE_UPS = 3
_SLEEP_S = 2e-4  # before each wake-up, for the sleeper's core to go idle
_LONGEST_MEASURING_S = 5e-3  # on a busy machine, measuring stops after this time
_MOST_TRIES = 200  # the most tries that a wake-up may cost; a longer one waited for a core

if sys.platform == "win32":  # getppid lists all processes there

    def _call_system() -> None:
        time.sleep(0)

else:
    _call_system = os.getppid

# A yield is late if it takes as long as hundreds of usual ones. With a limit of 60 tries, ordinary
# switches between a caller and its workers would count as late.
_LATE_TRIES, _LATE_WAKE_UPS = 200, 2
_SHORTEST_TRIES, _SHORTEST_WAKE_UPS = 200, 2
_LONGEST_TRIES, _LONGEST_WAKE_UPS = 2000, 20  # a wake-up is less than 5 % of a longer wait
_GIVEN_TRIES = 10  # an unused yield takes 1 try, a switch to another process and back far more


class Costs(NamedTuple):
    """Costs of waiting on a machine.

    Attributes:
        try_s: seconds for an undisturbed try.
        wake_up_s: seconds from waking a sleeping thread until it runs.
    """

    try_s: float
    wake_up_s: float


class Patience(NamedTuple):
    """Limits in seconds that decide how long a wait tries before it blocks.

    Attributes:
        late_s: a yield that takes longer is late: another process had the core for a tick.
        shortest_s: every wait tries for this time at least.
        longest_s: waits that are expected to take longer block at once.
        given_s: a yield that takes longer gave the core to another process.
    """

    late_s: float
    shortest_s: float
    longest_s: float
    given_s: float


def patience(costs: Costs) -> Patience:
    """Return how long to try on a machine with these costs."""
    return Patience(
        late_s=max(_LATE_TRIES * costs.try_s, _LATE_WAKE_UPS * costs.wake_up_s),
        shortest_s=max(_SHORTEST_TRIES * costs.try_s, _SHORTEST_WAKE_UPS * costs.wake_up_s),
        longest_s=max(_LONGEST_TRIES * costs.try_s, _LONGEST_WAKE_UPS * costs.wake_up_s),
        given_s=_GIVEN_TRIES * costs.try_s,
    )


@functools.cache
def patience_here() -> Patience:
    """Return how long to try on this machine. Measures once per process, for milliseconds."""
    return patience(measure_costs())


def measure_costs() -> Costs:
    """Measure the costs of waiting. The least values count: disturbances only add to them."""
    limit = time.perf_counter() + _LONGEST_MEASURING_S
    try_s = _measure_try(limit)
    return Costs(try_s, min(_measure_wake_up(limit), _MOST_TRIES * try_s))


def _measure_try(limit: float) -> float:
    """Return the seconds of a try. Several are timed together because clocks tick coarsely."""
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
    """Return the seconds from freeing a lock until a thread that sleeps on it runs."""
    go, done, woken_at = threading.Lock(), threading.Lock(), [0.0]
    ends = False

    def sleeper() -> None:
        while True:
            go.acquire()
            woken_at[0] = time.perf_counter()
            is_last = ends  # read now: after `done` the next round may begin
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
