"""The stack of a worker that hangs is read completely, however slowly it is written."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np
import psutil
import pytest

import rookery
from rookery.testing import Fault, Faulty
from rookery.worker import process

MAIN = [
    "Thread 0x00007f0000000001 (most recent call first):\n",
    '  File "faulty.py", line 90 in _commit\n',
    '  File "entry.py", line 60 in run\n',
    '  File "<string>", line 1 in <module>\n',
]


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = Pipe(duplex=False)
    with ours, theirs:
        yield ours, theirs


def _write_slowly(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[Connection, Connection], words: list[str]
) -> list[str]:
    """Write parts of the output every four seconds of waiting; return those not written yet."""
    ours, theirs = pipe
    left = list(words)

    def wait(connections: Any, timeout: float) -> list[Any]:
        assert connections == [ours]
        if timeout < 4.0 or not left:
            return []
        os.write(theirs.fileno(), left.pop(0).encode())
        return connections

    monkeypatch.setattr(process.connection, "wait", wait)
    return left


def test_a_stack_that_comes_in_parts_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[Connection, Connection]
) -> None:
    _write_slowly(monkeypatch, pipe, MAIN)
    assert process._read_stacks(pipe[0]) == "".join(MAIN)


def test_reading_ends_after_the_main_threads_stack(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[Connection, Connection]
) -> None:
    left = _write_slowly(monkeypatch, pipe, [*MAIN, "more"])
    assert process._read_stacks(pipe[0]) == "".join(MAIN)
    assert left == ["more"]


def test_reading_ends_when_the_process_exits(pipe: tuple[Connection, Connection]) -> None:
    ours, theirs = pipe
    os.write(theirs.fileno(), MAIN[0].encode())
    theirs.close()
    assert process._read_stacks(ours) == MAIN[0]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="POSIX only")
def test_a_stopped_process_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_read_stacks", None)  # which nobody calls
    policy = rookery.FaultPolicy(step_timeout_s=0.2)  # who is stopped misses any deadline
    with rookery.make_vec(Faulty, 1, "process", 1, faults=policy) as venv:
        venv.reset()
        worker = psutil.Process(venv.pids[0])
        worker.suspend()
        with pytest.raises(rookery.WorkerTimeout, match="the process is stopped"):
            venv.step(np.array([0]))


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="POSIX only")
def test_a_process_that_is_gone_before_the_signal_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = rookery.FaultPolicy(step_timeout_s=0.2)  # who hangs misses any deadline
    with rookery.make_vec(Faulty, 1, "process", 1, faults=policy) as venv:
        venv.reset()
        gone, kill = venv.pids, os.kill

        def no_such_process(pid: int, number: int) -> None:
            if pid in gone:  # as where somebody else has reaped it
                raise ProcessLookupError(pid)
            kill(pid, number)

        monkeypatch.setattr(os, "kill", no_such_process)
        with pytest.raises(rookery.WorkerTimeout, match="did not finish its step"):
            venv.step(np.array([Fault.HANG]))
