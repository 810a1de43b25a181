"""Processes that are ended with all that came of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from rookery.common.process_tree import end_with_children, with_children

_STARTS_WORKERS_THAT_HANG = """
import pathlib, sys, time
import gymnasium as gym, rookery

class Hanging(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, folder, number):
        pathlib.Path(folder, str(number)).touch()
        time.sleep(3600)

folder = sys.argv[1]
print("started", flush=True)
envs = [lambda n=n: Hanging(folder, n) for n in range(2)]
rookery.make_vec(envs, backend="process", num_workers=2)
"""
_HAS_A_GRANDCHILD = """
import subprocess, sys
child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
print("started", flush=True)
subprocess.run([sys.executable, "-c", child])
"""


def _started(program: str, *args: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *map(str, args)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"started\n"
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    family = with_children(process.pid)
    end_with_children(process)
    assert process.returncode is not None
    for member in family:
        assert not member.is_running() or member.status() == psutil.STATUS_ZOMBIE
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def test_no_name_of_a_semaphore_outlives_workers_that_hang_while_they_start(tmp_path: Path) -> None:
    process = _started(_STARTS_WORKERS_THAT_HANG, tmp_path)
    while len(list(tmp_path.iterdir())) < 2:  # both workers are in an env's __init__
        assert process.poll() is None
    _end(process)
    # A fixture of all tests checks that nothing is left in the system.


def test_children_of_children_are_ended() -> None:
    process = _started(_HAS_A_GRANDCHILD)
    while len(with_children(process.pid)) < 3:
        assert process.poll() is None
    _end(process)


def test_a_process_that_has_ended_is_no_trouble() -> None:
    process = _started("print('started')")
    process.wait()
    _end(process)
    assert with_children(process.pid) == []
