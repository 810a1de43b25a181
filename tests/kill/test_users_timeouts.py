"""Without a policy's deadlines, whoever gives a timeout of his own is never kept longer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from counting_envs import LARGE, Counting
from traps import Trap, armed, await_stop

import rookery


@pytest.mark.parametrize(
    ("call", "point"),
    [
        ("step", "before an order"),
        ("step", "before answered"),
        ("step", "after answered"),  # its message is missing
        ("step", "before a message is sent"),
        ("reset", "before an order"),
        ("reset", "after progress"),
        ("call", "before an answer"),
        ("call", "half a message"),
    ],
)
def test_a_call_can_be_waited_for_with_a_timeout(tmp_path: Path, call: str, point: str) -> None:
    trap = Trap(point, str(tmp_path), how="stop")
    with armed(trap):
        venv = rookery.make_vec(Counting, 4, "process", 2)
        venv.reset()
        trap.set()
        if call == "call":
            venv.call_async("double", 1)
        elif call == "reset":
            venv.reset_async()
        else:
            venv.step_async(np.full(4, LARGE))
        await_stop(trap)
        for _ in range(2):
            with pytest.raises(rookery.WorkerTimeout, match=f"{call}_wait"):
                getattr(venv, f"{call}_wait")(timeout=0.2)
        with pytest.warns(UserWarning, match="while waiting"):
            venv.close(timeout=0.2)


def test_closing_waits_for_nobody_who_reads_no_more(tmp_path: Path) -> None:
    trap = Trap("before an order", str(tmp_path), how="stop")
    with armed(trap):
        venv = rookery.make_vec(Counting, 4, "process", 2)
        trap.set()
        venv.reset_async()
        await_stop(trap)
        backend = venv._backends[1]
        descriptor = backend.worker.channel.pipe.fileno()
        with pytest.raises(BlockingIOError):
            while True:
                os.write(descriptor, bytes(1))
        backend._part.answered[:] = backend._part.asked  # so that closing begins at once
        with pytest.warns(UserWarning, match="while waiting"):
            venv.close(timeout=0.2)
