"""Closing reaches every env that can be closed, and ends every worker, whatever goes wrong."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gated_envs import NO_HURRY_S, WAIT, Gated, make
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from interruption import interrupted
from patience import PATIENCE_S

import rookery

BACKENDS = ["serial", "thread", "process"]
WORKERS = ["thread", "process"]


def _closed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("closed-*"))


class Follower(Gated):
    """With action WAIT, its step lasts until the env with seed 6 was closed."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while action == WAIT and not (self._folder / "closed-6").exists():
            time.sleep(0.001)
        return super().step(0)


@pytest.mark.filterwarnings("ignore:.*while waiting")
@pytest.mark.parametrize("kind", WORKERS)
def test_an_env_that_is_busy_keeps_no_other_from_being_closed(kind: str, tmp_path: Path) -> None:
    venv = make(kind, Follower, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
    venv.step_async(np.array([WAIT, 0]))
    venv.close(timeout=PATIENCE_S)
    assert _closed(tmp_path) == ["closed-5", "closed-6"]


@pytest.mark.parametrize("call", ["reset", "step", "call"])
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_close_while_a_call_is_pending_warns_that_its_result_is_dropped(
    kind: str, call: str
) -> None:
    venv = make(kind, Gated)
    venv.reset(seed=5)
    begins = {
        "reset": lambda: venv.reset_async(seed=6),
        "step": lambda: venv.step_async(np.zeros(2, int)),
        "call": lambda: venv.call_async("count"),
    }
    begins[call]()
    with pytest.warns(UserWarning, match=f"while waiting for `{call}`: its result is dropped"):
        venv.close(timeout=NO_HURRY_S)


@pytest.mark.filterwarnings("error")
def test_a_close_while_no_call_is_pending_warns_of_nothing() -> None:
    venv = make("process", Gated)
    venv.reset(seed=5)
    venv.step(np.zeros(2, int))
    venv.close(timeout=NO_HURRY_S)


class Refusing(Gated):
    """Raises when it is closed, if asked; always notes that it was."""

    error: type[BaseException] | None = None

    def close(self) -> None:
        super().close()
        if self.error is not None:
            raise self.error(f"no close of {self._seed}")


@pytest.mark.parametrize("error", [ValueError, SystemExit, GeneratorExit])
@pytest.mark.parametrize("num_workers", [1, 4])
@pytest.mark.parametrize("kind", BACKENDS)
def test_every_env_is_closed_though_several_fail_at_it(
    kind: str, num_workers: int, error: type[BaseException], tmp_path: Path
) -> None:
    options = {} if kind == "serial" else {"num_workers": num_workers}
    venv = make(kind, Refusing, 4, kwargs={"folder": str(tmp_path)}, **options)
    venv.reset(seed=5)
    venv.set_attr("error", [None, error, error, None])
    with pytest.raises(BaseException, match="no close of 6") as caught:
        venv.close(timeout=NO_HURRY_S)
    assert _closed(tmp_path) == [f"closed-{seed}" for seed in (5, 6, 7, 8)]
    assert isinstance(caught.value, rookery.EnvFailed)


class Handle:
    """Cannot be closed."""

    def close(self) -> None:
        raise ArithmeticError("no close of the handle")


class Holding(Refusing):
    """Was given something that must be closed after it."""

    def __init__(self, handle: Handle, folder: str) -> None:
        super().__init__(folder)


@pytest.mark.parametrize("error", [None, ValueError])
@pytest.mark.parametrize("options", [{"backend": "serial"}, {"num_workers": 1}, {"num_workers": 2}])
def test_a_deferred_argument_that_cannot_be_closed_keeps_no_env_from_it(
    options: dict[str, Any], error: type[Exception] | None, tmp_path: Path
) -> None:
    if "num_workers" in options:
        options = {"backend": "process", "caller_steps": options["num_workers"] == 1, **options}
    kwargs = {"folder": str(tmp_path), "handle": rookery.Deferred(Handle)}
    venv = rookery.make_vec(Holding, 4, env_kwargs=kwargs, **options)
    venv.reset(seed=5)
    venv.set_attr("error", [None, error, None, None])
    complaint = "no close of the handle" if error is None else "no close of 6"
    with pytest.raises(rookery.EnvFailed, match=complaint) as caught:
        venv.close(timeout=NO_HURRY_S)
    assert isinstance(caught.value, ArithmeticError if error is None else ValueError)
    assert _closed(tmp_path) == [f"closed-{seed}" for seed in (5, 6, 7, 8)]


def test_a_deferred_argument_of_a_native_env_that_cannot_be_closed_is_told_as_its_failure() -> None:
    def make_batch(num_envs: int, handle: Handle) -> gym.vector.VectorEnv[Any, Any, Any]:
        return CartPoleVectorEnv(num_envs)

    kwargs = {"handle": rookery.Deferred(Handle)}
    venv = rookery.make_vec(make_batch, 4, "native", envs_per_batch=2, env_kwargs=kwargs)
    with pytest.raises(rookery.EnvFailed, match="no close of the handle"):
        venv.close(timeout=NO_HURRY_S)


@pytest.mark.parametrize("worker", [0, 1, 2])
@pytest.mark.parametrize("call", ["step", "call", "set_attr"])
def test_after_a_call_met_a_dead_worker_the_others_close_their_envs(
    call: str, worker: int, tmp_path: Path
) -> None:
    venv = make("process", Gated, 3, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
    process = psutil.Process(venv.pids[worker])
    process.kill()
    psutil.wait_procs([process])
    calls = {
        "step": lambda: venv.step(np.zeros(3, int)),
        "call": lambda: venv.get_attr("count"),
        "set_attr": lambda: venv.set_attr("count", 0),
    }
    with pytest.raises(rookery.WorkerDied):
        calls[call]()
    venv.close(timeout=PATIENCE_S)
    assert _closed(tmp_path) == [f"closed-{5 + i}" for i in range(3) if i != worker]


class Threaded(Gated):
    """Leaves a thread that the interpreter would wait for."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        threading.Thread(target=threading.Event().wait).start()


def test_a_thread_that_an_env_has_left_keeps_no_worker_from_ending(tmp_path: Path) -> None:
    venv = make("process", Threaded, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
    venv.close(timeout=NO_HURRY_S)
    assert len(_closed(tmp_path)) == 2


def test_a_ctrl_c_within_a_close_leaves_no_worker(tmp_path: Path) -> None:
    for line in range(4, 100, 8):  # the workers are ended one after the other
        venv = make("process", Gated, kwargs={"folder": str(tmp_path)})
        processes = [psutil.Process(pid) for pid in venv.pids]
        venv.reset(seed=5)
        venv.send(np.array([WAIT, WAIT]))  # so that none ends by itself
        with suppress(KeyboardInterrupt):
            interrupted(partial(venv.close, terminate=True), line)
        venv.close(terminate=True)
        left = [process for process in processes if process.is_running()]
        for process in left:
            process.kill()
        assert not left, f"after a Ctrl-C before line {line}"
