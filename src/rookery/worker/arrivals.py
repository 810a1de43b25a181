"""Arrivals: the bells that workers ring when an env has answered that was asked singly."""

from __future__ import annotations

import time
from collections.abc import Callable

from rookery.worker.doorbell import Doorbell

_TURN_S = 1e-3  # how long one of several bells is listened to
_LOOK_S = 0.1  # how often whoever waits is asked whether to go on


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
        self._keeps_name = keeps_name
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

    def wait(self, anyone_left: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait for a ring of any bell; see :meth:`rookery.worker.doorbell.Doorbell.wait`."""
        if len(self._bells) == 1:
            return self._bells[0].wait(anyone_left, deadline)
        look = time.perf_counter() + _LOOK_S
        while True:
            for bell in self._bells:
                if bell.wait(_yes, time.perf_counter() + _TURN_S):
                    return True
            now = time.perf_counter()
            if deadline is not None and now >= deadline:
                return False
            if now >= look:
                look = now + _LOOK_S
                if not anyone_left():
                    return False


def _yes() -> bool:
    return True
