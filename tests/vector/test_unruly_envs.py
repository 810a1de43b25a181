"""Envs that print, fork, start threads, or change what belongs to the whole process."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from backends import BACKENDS, VARIANTS
from programs import output_of

import rookery
from rookery.testing import Faulty

NUM_ENVS = 3
WITH_WORKERS = [name for name in BACKENDS if BACKENDS[name].has_workers]


def _print() -> None:
    print("a line of the env's")
    print("another", file=sys.stderr)
    os.write(1, b"raw\n")


def _close_standard_streams() -> None:
    sys.stdin = sys.stdout = sys.stderr = None  # type: ignore[assignment]


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def _fork_and_leave_it_to_python() -> None:
    """The child ends as a program does, and must not end the worker's things with it."""
    if os.fork() == 0:
        gc.collect()
        os._exit(0)


def _run_a_program() -> None:
    done = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True, check=True)
    assert done.stdout == b"7\n"


def _start_a_daemon() -> None:
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def _start_a_thread() -> None:
    threading.Thread(target=time.sleep, args=(3600,)).start()


def _change_directory() -> None:
    os.chdir("/")


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)


def _take_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)


def _make_warnings_errors() -> None:
    warnings.simplefilter("error")
    np.seterr(all="raise")


def _change_the_interpreter() -> None:
    gc.disable()
    sys.setrecursionlimit(300)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    os.environ.clear()
    sys.path.clear()


HABITS: dict[str, Callable[[], None]] = {
    function.__name__.strip("_"): function
    for function in (
        _print,
        _close_standard_streams,
        _fork,
        _fork_and_leave_it_to_python,
        _run_a_program,
        _start_a_daemon,
        _start_a_thread,
        _change_directory,
        _ignore_signals,
        _take_signals,
        _make_warnings_errors,
        _change_the_interpreter,
    )
}


class Unruly(gym.Env[Any, Any]):
    """CartPole with a habit that it follows when it is reset and in its third step.

    Args:
        habit: key of ``HABITS``.
    """

    def __init__(self, habit: str) -> None:
        self._env = gym.make("CartPole-v1")
        self.observation_space, self.action_space = (
            self._env.observation_space,
            self._env.action_space,
        )
        self._follow = HABITS[habit]
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._follow()
        return self._env.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        if self._steps == 3:
            self._follow()
        return self._env.step(action)


def _trajectory(venv: Any) -> Any:
    rows = [venv.reset(seed=4)[0].copy()]
    for step in range(20):  # no episode ends
        rows.append(venv.step(np.full(NUM_ENVS, step % 2))[0].copy())
    return np.array(rows)


def _own() -> tuple[Any, ...]:
    """Global state of this process that an env in another process must not change."""
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    filters, path = list(warnings.filters), list(sys.path)
    return os.getcwd(), handlers, filters, np.geterr(), dict(os.environ), path, gc.isenabled()


# What a worker has of its caller, or could do to it, as its processes were started.
_OTHERS: dict[str, tuple[str, ...]] = {
    "spawn-2": ("print", "close_standard_streams", "run_a_program", "change_the_interpreter"),
    "fork-2": (
        "print",
        "close_standard_streams",
        "fork",
        "fork_and_leave_it_to_python",
        "take_signals",
        "change_the_interpreter",
    ),
    "isolated": ("fork", "start_a_thread"),
}


@pytest.mark.parametrize(
    ("backend", "habit"),
    [
        *(("process", habit) for habit in HABITS),
        *(
            pytest.param(backend, habit, marks=[pytest.mark.whole] * (habit not in habits))
            for backend, habits in _OTHERS.items()
            for habit in HABITS
        ),
    ],
)
def test_a_habit_changes_neither_the_trajectory_nor_the_caller(
    backend: str, habit: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with rookery.make_vec("CartPole-v1", NUM_ENVS, backend="serial") as plain:
        expected = _trajectory(plain)
    before = _own()
    with rookery.make_vec(partial(Unruly, habit), NUM_ENVS, **VARIANTS[backend].options) as venv:
        pids = venv.pids
        np.testing.assert_array_equal(_trajectory(venv), expected)
        assert venv.get_attr("_steps") == (20,) * NUM_ENVS
    assert _own() == before
    assert not any(psutil.pid_exists(pid) for pid in pids)
    # What a fork server starts writes where the server did, which another test may have started.
    if habit == "print" and backend == "spawn-2":
        out, err = capfd.readouterr()
        assert out.count("raw\n") == 2 * NUM_ENVS and err.count("another") == 2 * NUM_ENVS


@pytest.mark.parametrize("habit", ["print", "fork", "run_a_program"])
def test_envs_of_this_process_may_have_habits_too(habit: str) -> None:
    with rookery.make_vec(partial(Unruly, habit), NUM_ENVS, backend="serial") as venv:
        actual = _trajectory(venv)
    with rookery.make_vec("CartPole-v1", NUM_ENVS, backend="serial") as plain:
        np.testing.assert_array_equal(actual, _trajectory(plain))


class ForkedInStep(Faulty):
    """Forks in every step; the copy ends as programs do, with all that they do at their end."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        os.waitpid(pid, 0)
        return super().step(action)


@pytest.mark.parametrize("backend", WITH_WORKERS[:1])
def test_a_forked_copy_of_a_worker_that_exits_is_none_of_the_callers_business(backend: str) -> None:
    with rookery.make_vec(ForkedInStep, NUM_ENVS, **BACKENDS[backend].options) as venv:
        venv.reset(seed=0)
        for count in (1, 2, 3):
            assert venv.step(np.zeros(NUM_ENVS, int))[0][:, 0].tolist() == [count] * NUM_ENVS


FORKED_CALLER = """
import os, sys, numpy as np, rookery
venv = rookery.make_vec("CartPole-v1", 2, backend="process", num_workers=2)
first = venv.reset(seed=0)[0]
pid = os.fork()
if pid == 0:
    sys.exit(0)  # as a program does, with all exit handlers
assert os.waitpid(pid, 0)[1] == 0
venv.step(np.zeros(2, int))
venv.close()
print("ok")
"""


def test_a_forked_copy_of_the_caller_that_exits_leaves_the_workers_alone() -> None:
    assert output_of(FORKED_CALLER) == "ok\n"


@pytest.mark.parametrize("backend", WITH_WORKERS)
def test_a_time_signal_of_the_callers_interrupts_no_step(backend: str) -> None:
    """A handler that returns leaves every wait where it was."""
    ticks: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    try:
        with rookery.make_vec("CartPole-v1", NUM_ENVS, **BACKENDS[backend].options) as venv:
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            actual = _trajectory(venv)
            while not ticks:
                venv.step(np.zeros(NUM_ENVS, int))
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with rookery.make_vec("CartPole-v1", NUM_ENVS, backend="serial") as plain:
        np.testing.assert_array_equal(actual, _trajectory(plain))
