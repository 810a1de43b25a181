"""A program leaves no file, no name and no process, however it exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")

SCRIPT = """
import os, time, rookery
def make():
    return rookery.make_vec(
        "CartPole-v1", 4, backend="process", num_workers=4, start_method=METHOD
    )
venv = make()
venv.reset()
print("stepping", flush=True)
ENDING
"""


def _names(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if f"rookery-{pid}-" in name]


def _all_names_go(pid: int) -> bool:
    """Return whether the resource tracker removes them, after all processes have exited."""
    deadline = time.monotonic() + PATIENCE_S
    while _names(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _names(pid)


def _run_until(
    tmp_path: Path, method: str, ending: str
) -> tuple[subprocess.Popen[str], list[psutil.Process], Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    script = SCRIPT.replace("METHOD", repr(method)).replace("ENDING", ending)
    (tmp_path / "script.py").write_text(script)
    caller = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "stepping\n"
    return caller, psutil.Process(caller.pid).children(recursive=True), folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "number"),
    [
        *((method, signal.SIGKILL) for method in ("forkserver", "spawn", "fork")),
        ("forkserver", signal.SIGTERM),
        *(pytest.param(m, signal.SIGTERM, marks=pytest.mark.whole) for m in ("spawn", "fork")),
    ],
)
def test_a_signal_leaves_nothing(tmp_path: Path, method: str, number: int) -> None:
    caller, processes, folder = _run_until(tmp_path, method, "time.sleep(600)")
    caller.send_signal(number)
    _, errors = caller.communicate()
    assert not psutil.wait_procs(processes, timeout=PATIENCE_S)[1]
    assert errors == ""
    assert os.listdir(folder) == []
    assert _all_names_go(caller.pid)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_kill_during_starts_leaves_no_name_and_no_traceback(tmp_path: Path, method: str) -> None:
    caller, processes, folder = _run_until(tmp_path, method, "while True: make().close()")
    seen = set(processes)
    for _ in range(20):  # until it is somewhere within a start
        seen.update(psutil.Process(caller.pid).children(recursive=True))
        if _names(caller.pid):
            break
    caller.kill()
    _, errors = caller.communicate()  # comes back once every process that could write has ended
    assert not psutil.wait_procs(list(seen), timeout=PATIENCE_S)[1]
    assert "Traceback" not in errors, errors
    assert os.listdir(folder) == []
    assert _all_names_go(caller.pid)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_only_the_caller_handles_an_interrupt_during_starts(tmp_path: Path, method: str) -> None:
    script = SCRIPT.replace("METHOD", repr(method)).replace("ENDING", "while True: make().close()")
    (tmp_path / "script.py").write_text(script)
    caller = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout is not None
    assert caller.stdout.readline() == "stepping\n"
    while not _names(caller.pid):  # they are there while workers start
        time.sleep(0.001)
    os.killpg(caller.pid, signal.SIGINT)  # as a terminal does
    _, errors = caller.communicate()
    assert caller.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    assert "spawn_main" not in errors, errors
    assert _all_names_go(caller.pid)
