"""Errors about missing resources say what to do, and a start that fails leaves nothing open."""

from __future__ import annotations

import _multiprocessing
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

import rookery
from rookery.errors import WorkerError
from rookery.testing import Fault, Faulty
from rookery.worker.start import launch
from rookery.worker.start.limits import DESCRIPTORS_PER_WORKER, start_failed

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/fd")

FEW_DESCRIPTORS = """
import gc, os, resource, rookery
def count():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))
def make(n):
    return rookery.make_vec(
        "CartPole-v1", n, backend="process", num_workers=n, start_method=METHOD
    )
make(1).close()
before = count()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    make(40)
except rookery.WorkerError as error:
    assert "ulimit -n" in str(error) and "num_workers" in str(error), error
assert count() == before, (count(), before, os.listdir("/proc/self/fd"))
assert not [n for n in os.listdir("/dev/shm") if f"rookery-{os.getpid()}-" in n]
make(2).close()
print("went on")
"""

COUNTED = """
import os, rookery
def count():
    return len(os.listdir("/proc/self/fd"))
def make(n):
    return rookery.make_vec(
        "CartPole-v1", n, backend="process", num_workers=n, start_method=METHOD
    )
make(1).close()
before, venv = count(), make(1)
one = count() - before
venv.close()
before, venv = count(), make(5)
print((count() - before - one) / 4)
venv.close()
"""


def _run(script: str, method: str, tmp_path: Path) -> str:
    (tmp_path / "script.py").write_text(script.replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
@linux
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_too_few_descriptors_are_named_and_none_is_lost(tmp_path: Path, method: str) -> None:
    assert _run(FEW_DESCRIPTORS, method, tmp_path) == "went on\n"


@linux
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_worker_takes_as_many_descriptors_as_the_message_says(
    tmp_path: Path, method: str
) -> None:
    assert float(_run(COUNTED, method, tmp_path)) == DESCRIPTORS_PER_WORKER


@linux
@pytest.mark.slow
def test_64_workers_start_under_a_limit_of_1024(tmp_path: Path) -> None:
    script = """
import resource, numpy as np, rookery
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
venv = rookery.make_vec("CartPole-v1", 64, backend="process", num_workers=64, start_method=METHOD)
venv.reset(seed=0)
venv.step(np.zeros(64, int))
venv.close()
print("went on")
"""
    assert _run(script, "forkserver", tmp_path) == "went on\n"


def _nothing() -> None:
    return


@linux
def test_a_fork_that_fails_leaves_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", no_fork)
    with pytest.raises(WorkerError, match="limit of processes"):
        launch.start_process("fork", None, _nothing, (), "nothing")
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert os.fork is no_fork


@linux
def test_a_fork_that_fails_in_the_server_is_reported(tmp_path: Path) -> None:
    (tmp_path / "no_more_forks.py").write_text(
        """
import errno, os
def fork():
    raise OSError(errno.EAGAIN, "no")
os.fork = fork
"""
    )
    script = """
import os, select, sys, rookery
from rookery.worker.start import forkserver
from rookery.worker.start import launch
sys.path.insert(0, os.getcwd())
connect = forkserver.ForkServer.connect_to_new_process
def connect_late(self, descriptors):
    status, to_child = connect(self, descriptors)
    if len(launch._servers) == 2:  # go on only when nobody has the other end any more
        poll = select.poll()
        poll.register(to_child, 0)
        poll.poll()
    return status, to_child
forkserver.ForkServer.connect_to_new_process = connect_late
launch.start_process("forkserver", None, print, (), "first").join()
before = len(os.listdir("/proc/self/fd"))
try:
    launch.start_process("forkserver", None, print, (), "nothing", ("no_more_forks",))
except rookery.WorkerError as error:
    print(error)
print(len(os.listdir("/proc/self/fd")) - before)
"""
    out = _run(script, "forkserver", tmp_path).split("\n")
    assert "limit of processes" in out[1]
    assert out[2] == "1"  # to the second server


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC])
def test_every_known_error_number_is_explained(number: int) -> None:
    error = start_failed(OSError(number, os.strerror(number)))
    assert os.strerror(number) in str(error)
    assert "fewer workers (num_workers=)" in str(error)


class _NoRoom:
    """Makes so many semaphores, and then the system has no room for more.

    Args:
        number: what the system says then.
        count: how many there is room for.
    """

    def __init__(self, number: int, count: int) -> None:
        self._number, self.left = number, count
        self._make = _multiprocessing.SemLock

    def __call__(self, *args: Any) -> Any:
        if self.left <= 0:
            raise OSError(self._number, os.strerror(self._number))
        self.left -= 1
        return self._make(*args)


@pytest.mark.skipif(sys.platform == "win32", reason="semaphores have no names there")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("count", [0, 3])
def test_the_error_about_missing_room_for_semaphores_says_what_to_do(
    count: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_multiprocessing, "SemLock", _NoRoom(number, count))
    with pytest.raises(WorkerError, match="/dev/shm") as caught:
        rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=2)
    assert "num_workers=" in str(caught.value) or "backend='serial'" in str(caught.value)


def test_without_room_for_a_new_workers_semaphores_its_envs_wait_for_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = rookery.FaultPolicy("restart")
    with rookery.make_vec(Faulty, 2, backend="process", num_workers=2, faults=faults) as venv:
        venv.reset(seed=0)
        room = _NoRoom(errno.ENOSPC, 0)
        monkeypatch.setattr(_multiprocessing, "SemLock", room)
        with pytest.raises(WorkerError, match="Semaphores need room in /dev/shm"):
            venv.step([0, Fault.KILL])
        with pytest.raises(WorkerError, match=r"reset\(\) starts a new one"):
            venv.step([0, 0])
        room.left = 100
        venv.reset(seed=0)
        assert venv.step([0, 0])[2].tolist() == [False, False]


def test_an_unknown_error_number_keeps_its_message() -> None:
    error: Any = start_failed(OSError(errno.EPERM, "not permitted"))
    assert str(error) == "A worker process could not be started: not permitted."
