"""A worker that acts by itself and ends or stops anywhere is noticed, and leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting_envs import Counting
from traps import Trap, armed, is_stopped

import rookery
from rookery.policy import make_policy

POINTS = (
    "before lend",
    "before a block",
    "before a mapping",
    "after a mapping",
    "after lend",
    "before install",
    "after install",
    "before a message is sent",
    "half a message",
    "after a message was sent",
    "before collect",
    "before weights",
    "amid weights",
    "after weights",
    "before progress",
    "after progress",
    "after collect",
    "before env.close",
    "after env.close",
    "leaving",
)
EARLY = POINTS[: POINTS.index("before a message is sent")]  # within the making of a collector
LATE = POINTS[POINTS.index("before env.close") :]


class Impatient(Exception):
    """Raised by whoever waits for a worker that has stopped."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("point", "how"),
    [(point, how) for point in POINTS for how in ("kill", "stop")],
)
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_collectors_worker_that_ends_or_stops_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, point: str, how: str, mode: str
) -> None:
    monkeypatch.setattr("rookery.collect.actor_pool._STOP_GRACE_S", 0.2)
    trap = Trap(point, str(tmp_path), how=how)

    def leave_if_stopped() -> None:
        if is_stopped(trap.stopped):
            raise Impatient

    expected = rookery.WorkerDied if how == "kill" else Impatient
    with armed(trap):
        if point in EARLY:
            trap.set()
            with pytest.raises(expected):
                _collector(method, mode, leave_if_stopped)
            return
        with _collector(method, mode, leave_if_stopped) as collector:
            collector.collect()
            trap.set()
            if point not in LATE:
                with pytest.raises(expected):
                    while True:  # the other worker may be quicker, for as long as it likes
                        collector.collect()
        assert point in LATE or not trap.is_set


def _collector(method: str, mode: str, between_waits: object) -> rookery.WorkerCollector:
    return rookery.WorkerCollector(
        Counting,
        make_policy,
        4,
        2,
        num_steps=8,
        mode=mode,  # type: ignore[arg-type]
        start_method=method,
        between_waits=between_waits,  # type: ignore[arg-type]
    )
