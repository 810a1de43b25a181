"""An env that hangs without computing."""

from __future__ import annotations

import time

from rookery.testing import Fault, Faulty


class Stuck(Faulty):
    """Sleeps for ever, whatever signals come, where its base class computes for ever."""

    def _fail(self, fault: int) -> None:
        while fault == Fault.HANG:
            time.sleep(3600)
        super()._fail(fault)
