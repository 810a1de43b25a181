"""A process that is forked from one with workers cannot use them, but can start others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S

SCRIPT = """
import os, sys, numpy as np, rookery
def make(method):
    return rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=2, start_method=method)
mine = make(METHOD)
mine.reset(seed=1)
pid = os.fork()
if pid == 0:
    for method in ("forkserver", "spawn", "fork"):
        venv = make(method)
        venv.reset(seed=1)
        venv.step(np.zeros(2, int))
        venv.close()
    left_open = make(METHOD)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for _ in range(3):
    mine.step(np.zeros(2, int))
mine.close()
make(METHOD).close()
print("went on")
"""


# The child starts workers by every method, whatever its parent's was.
@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["forkserver", "fork", pytest.param("spawn", marks=pytest.mark.whole)]
)
def test_the_child_starts_other_workers_and_the_parent_continues(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("went on\n", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_workers_exit_with_the_caller_although_a_forked_copy_lives(
    tmp_path: Path, method: str
) -> None:
    script = f"""
import os, time, rookery
venv = rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=2, start_method={method!r})
copy = os.fork()
if copy == 0:
    time.sleep(600)
print(copy, *venv.pids, flush=True)
time.sleep(600)
"""
    (tmp_path / "script.py").write_text(script)
    caller = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert caller.stdout is not None
    copy, *pids = (int(pid) for pid in caller.stdout.readline().split())
    workers = [psutil.Process(pid) for pid in pids]
    caller.kill()
    caller.wait()
    try:
        assert not psutil.wait_procs(workers, timeout=PATIENCE_S)[1]
    finally:
        os.kill(copy, signal.SIGKILL)
        caller.stdout.close()
