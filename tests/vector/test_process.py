"""Faults and settings of worker processes only."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from patience import PATIENCE_S
from programs import started

import rookery
from rookery.testing import Fault, Faulty
from rookery.vector.process import split


def _make(**options: Any) -> rookery.VectorEnv:
    return rookery.make_vec(Faulty, 3, backend="process", num_workers=3, **options)


METHODS = ["forkserver", "spawn", "fork"]
ENDS = {
    -2: "was killed by SIGKILL, probably out of memory",
    -3: "exited with exit code 3",
    -6: "was killed by SIGSEGV, a crash in native code",
}


def _with_all_values(methods: list[str], others: list[Any]) -> list[Any]:
    """Pairs: all of the first method, and of the others one; the rest with --whole."""
    return [
        pytest.param(method, other, marks=[pytest.mark.whole] * bool(i and j))
        for i, method in enumerate(methods)
        for j, other in enumerate(others)
    ]


# From a fork server the end of a worker comes as a number that it writes; else from the system.
@pytest.mark.parametrize(("method", "action"), _with_all_values(METHODS, list(ENDS)))
def test_a_worker_that_dies_is_named_with_its_signal_or_exit_code(method: str, action: int) -> None:
    with _make(start_method=method) as venv:
        venv.reset(seed=20)
        venv.step(np.array([0, 0, 0]))
        with pytest.raises(rookery.WorkerDied, match=ENDS[action]) as caught:
            venv.step(np.array([0, action, 0]))
        error = caught.value
        assert error.env_ids == (1,) and error.command == "step"
        assert (error.seed, error.steps_since_reset, error.last_action) == (21, 2, action)
        assert "env 1 (Faulty)" in str(caught.value)
        with pytest.raises(rookery.WorkerDied):
            venv.step(np.array([0, 0, 0]))


def test_a_worker_killed_between_calls_is_noticed_by_the_next() -> None:
    with _make() as venv:
        venv.reset()
        os.kill(venv.pids[2], signal.SIGKILL)
        with pytest.raises(rookery.WorkerDied, match="env 2"):
            for _ in range(3):
                venv.step(np.array([0, 0, 0]))


def test_closing_right_after_a_worker_was_killed_is_no_error() -> None:
    for _ in range(5):
        venv = _make()
        venv.reset()
        os.kill(venv.pids[0], signal.SIGKILL)
        venv.close()


def test_the_remote_traceback_is_shown_as_the_cause() -> None:
    with _make() as venv:
        venv.reset()
        with pytest.raises(rookery.EnvFailed) as caught:
            venv.step(np.array([0, -1, 0]))
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    assert "in _fail" in str(cause.__cause__) and "faulty.py" in str(cause.__cause__)


def test_no_env_is_built_in_the_calling_process_when_isolated() -> None:
    with rookery.make_vec(Pid, 3, isolate=True) as venv:
        pids = venv.get_attr("pid")
        assert len(set(pids)) == 3 and os.getpid() not in pids
        assert venv.num_workers == 3 and sorted(pids) == sorted(venv.pids)
        assert venv.choice is None


def test_the_caller_steps_a_share_when_asked() -> None:
    with rookery.make_vec(Pid, 4, backend="process", caller_steps=True, num_workers=1) as venv:
        assert venv.get_attr("pid") == (os.getpid(),) * 2 + venv.pids * 2


class Pid(Faulty):
    @property
    def pid(self) -> int:
        return os.getpid()


def test_envs_are_split_evenly() -> None:
    assert split(7, 3) == [range(2), range(2, 4), range(4, 7)]
    assert split(2, 2) == [range(1), range(1, 2)]


def test_an_argument_that_cannot_travel_is_refused_before_a_process_starts() -> None:
    before = psutil.Process().children(recursive=True)
    with pytest.raises(rookery.PicklingError, match=r"(?s)lock.*Deferred.*fork.*serial"):
        _make(env_kwargs={"fail": threading.Lock()})
    assert psutil.Process().children(recursive=True) == before
    with _make(env_kwargs={"fail": threading.Lock()}, start_method="fork") as venv:
        venv.reset()
    with _make(env_kwargs={"fail": rookery.Deferred(threading.Lock)}) as venv:
        venv.reset()


def test_a_pending_step_does_not_hold_up_close() -> None:
    venv = _make()
    venv.reset()
    pids = venv.pids
    venv.step_async(np.array([0, Fault.HANG_NATIVE, 0]))
    with pytest.warns(UserWarning, match="while waiting"):
        venv.close(timeout=0.01)  # a close that waited for the step would never end
    assert venv.closed and not any(psutil.pid_exists(pid) for pid in pids)


CALLER = """
import os, sys, time, numpy as np, rookery
venv = rookery.make_vec("CartPole-v1", 4, backend="process", num_workers=2, start_method=METHOD)
venv.reset(seed=0)
print(*venv.pids, flush=True)
while True:
    venv.step(np.zeros(4, int))
"""


@pytest.mark.parametrize(
    ("method", "sign"),
    _with_all_values(METHODS, [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]),
)
def test_nothing_survives_a_caller_that_is_killed(
    method: str, sign: signal.Signals, tmp_path: Path
) -> None:
    has_names = os.path.isdir("/dev/shm")
    with started(CALLER.replace("METHOD", repr(method)), tmp_path) as caller:
        workers = [psutil.Process(int(pid)) for pid in caller.stdout.readline().split()]
        assert len(workers) == 2
        caller.send_signal(sign)
        _, errors = caller.communicate(timeout=PATIENCE_S)
    assert not psutil.wait_procs(workers, timeout=PATIENCE_S)[1]
    assert errors.count("Traceback") == (1 if sign is signal.SIGINT else 0), errors
    assert "leaked" not in errors
    if has_names:
        assert not {n for n in os.listdir("/dev/shm") if f"rookery-{caller.pid}-" in n}
    assert list(tmp_path.iterdir()) == []


def test_a_forked_copy_of_the_caller_does_not_close_the_workers() -> None:
    with _make() as venv:
        venv.reset()
        pid = os.fork()
        if pid == 0:
            try:
                venv.close()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert venv.step(np.zeros(3, int))[0][:, 0].tolist() == [1, 1, 1]


def test_a_vector_env_works_in_a_thread() -> None:
    results: list[Any] = []

    def work() -> None:
        with _make() as venv:
            venv.reset()
            results.append(venv.step(np.zeros(3, int))[1].tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [[1.0, 1.0, 1.0]]


def test_workers_outlive_the_thread_that_started_them() -> None:
    made: list[rookery.VectorEnv] = []
    thread = threading.Thread(target=lambda: made.append(_make()))
    thread.start()
    thread.join()
    with made[0] as venv:
        venv.reset()
        time.sleep(0)
        assert venv.step(np.zeros(3, int))[1].tolist() == [1.0, 1.0, 1.0]
