"""A caller that is killed anywhere leaves no process, no name and no folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from callers import CALLER_POINTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")

_MARK = "ROOKERY_TEST_OF_A_KILLED_CALLER"


def _marked(value: str) -> list[psutil.Process]:
    """Processes that descend from a caller, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == value and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize(
    "point", range(len(CALLER_POINTS)), ids=lambda i: "-".join(CALLER_POINTS[i])
)
def test_a_caller_that_is_killed_anywhere_leaves_nothing(
    tmp_path: Path, point: int, method: str
) -> None:
    if method == "fork" and "PipeChannel.send" in "-".join(CALLER_POINTS[point]):
        pytest.skip("a forked worker inherits the trap, and would be the first to meet it")
    temporary, traps = tmp_path / "temporary", tmp_path / "traps"
    temporary.mkdir()
    traps.mkdir()
    caller = subprocess.Popen(
        [
            sys.executable,
            str(Path(__file__).with_name("callers.py")),
            str(point),
            method,
            str(traps),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary), _MARK: str(tmp_path)},
    )
    _, errors = caller.communicate()  # comes back once every process that could write has ended
    assert caller.returncode == -signal.SIGKILL, errors
    assert "Traceback" not in errors, errors
    while _marked(str(tmp_path)) or _names(caller.pid):  # within the test's own limit
        time.sleep(0.05)
    assert os.listdir(temporary) == []


def _names(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f"rookery-{pid}-" in name]
