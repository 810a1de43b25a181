"""Processes that envs start are killed with their worker, however it exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pytest
from patience import PATIENCE_S
from programs import started

import rookery
from rookery.testing import Fault, Faulty


class Launcher(Faulty):
    """Starts a process and leaves it running."""

    def __init__(self) -> None:
        super().__init__()
        code = "import time; time.sleep(3600)"
        self.game = subprocess.Popen([sys.executable, "-c", code])

    @property
    def game_pid(self) -> int:
        return self.game.pid


def _gone(pids: tuple[int, ...]) -> bool:
    games = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(games, timeout=PATIENCE_S)[1]


class DiesBesideACopy(Faulty):
    """Forks a copy of its worker, which keeps all open descriptors, and exits."""

    def __init__(self) -> None:
        super().__init__()
        if os.fork() == 0:
            signal.pause()
        os._exit(7)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_copy_that_a_constructor_has_forked_does_not_hide_an_exit(method: str) -> None:
    with pytest.raises(rookery.WorkerDied, match="exit code 7 during make"):
        rookery.make_vec(DiesBesideACopy, 2, backend="process", num_workers=2, start_method=method)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_they_are_killed_when_the_vector_env_is_closed(method: str) -> None:
    with rookery.make_vec(Launcher, 2, backend="process", start_method=method) as venv:
        pids = venv.get_attr("game_pid")
        assert all(psutil.pid_exists(pid) for pid in pids)
    assert _gone(pids)


@pytest.mark.slow
def test_they_are_killed_when_their_worker_is_killed() -> None:
    with rookery.make_vec(Launcher, 2, backend="process", num_workers=2) as venv:
        venv.reset()
        pids = venv.get_attr("game_pid")
        with pytest.raises(rookery.WorkerDied):
            venv.step(np.array([Fault.KILL, 0]))
    assert _gone(pids)


def test_they_are_killed_when_the_caller_is_killed(tmp_path: Any) -> None:
    script = """
import os, sys; sys.path[:0] = FOLDER, os.path.dirname(FOLDER)
import rookery, time
from test_grandchildren import Launcher
venv = rookery.make_vec(Launcher, 2, backend="process", num_workers=2)
print(*venv.get_attr("game_pid"), flush=True)
time.sleep(3600)
"""
    script = script.replace("FOLDER", repr(os.path.dirname(__file__)))
    with started(script, tmp_path) as caller:
        pids = tuple(int(pid) for pid in caller.stdout.readline().split())
        assert len(pids) == 2
        caller.send_signal(signal.SIGKILL)
    assert _gone(pids)
