"""A caller that is killed anywhere leaves no process, no name and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from callers import CALLER_POINTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")

_MARK = "ROOKERY_TEST_OF_A_KILLED_CALLER"


@pytest.fixture(scope="module")
def callers() -> Iterator[subprocess.Popen[str]]:
    """The program that forks callers; see there."""
    program = [sys.executable, str(Path(__file__).with_name("callers.py"))]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:  # which closes its input, and waits for its end
        yield started


def _family(caller: int, mark: str) -> list[psutil.Process]:
    """Processes that descend from a caller, whoever their parent is now, and it."""
    found = []
    for process in psutil.process_iter():
        try:
            is_one = os.getsid(process.pid) == caller or process.environ().get(_MARK) == mark
            if is_one and process.status() != "zombie":
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize(
    "point", range(len(CALLER_POINTS)), ids=lambda i: "-".join(CALLER_POINTS[i])
)
def test_a_caller_that_is_killed_anywhere_leaves_nothing(
    tmp_path: Path, callers: subprocess.Popen[str], point: int, method: str
) -> None:
    if method == "fork" and "PipeChannel.send" in "-".join(CALLER_POINTS[point]):
        pytest.skip("a forked worker inherits the trap, and would be the first to meet it")
    temporary, traps, errors = tmp_path / "temporary", tmp_path / "traps", tmp_path / "errors"
    temporary.mkdir()
    traps.mkdir()
    wish = {
        "point": point,
        "method": method,
        "traps": str(traps),
        "errors": str(errors),
        "environment": {"TMPDIR": str(temporary), _MARK: str(tmp_path)},
    }
    assert callers.stdin is not None and callers.stdout is not None
    callers.stdin.write(json.dumps(wish) + "\n")
    callers.stdin.flush()
    caller, code = map(int, callers.stdout.readline().split())
    while _family(caller, str(tmp_path)) or _names(caller):  # within the test's own limit
        time.sleep(0.05)
    told = errors.read_text()
    assert code == -signal.SIGKILL, told
    assert "Traceback" not in told, told
    assert os.listdir(temporary) == []


def _names(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f"rookery-{pid}-" in name]
