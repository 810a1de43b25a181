"""Whatever interrupts a call, a reset makes the vector env whole, and nothing stale is returned."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gated_envs import INTERRUPT, NO_HURRY_S, Gated, make
from interruption import is_interrupted
from patience import PATIENCE_S

import rookery
from rookery.testing import Fault, Faulty
from rookery.worker import pipes

BACKENDS = ["serial", "thread", "process"]


def _gated(kind: str, folder: Path, num_envs: int = 3) -> rookery.VectorEnv:
    return make(kind, Gated, num_envs, kwargs={"folder": str(folder), "caller": os.getpid()})


def _counts(obs: Any) -> list[int]:
    return list(obs[:, 0].tolist())


@pytest.mark.parametrize("kind", BACKENDS)
def test_after_a_ctrl_c_in_a_step_a_reset_begins_anew(kind: str, tmp_path: Path) -> None:
    with _gated(kind, tmp_path) as venv:
        venv.reset(seed=1)
        venv.step(np.zeros(3, int))
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.array([0, INTERRUPT, 0]))
        (tmp_path / "open").touch()
        assert _counts(venv.reset(seed=1)[0]) == [0, 0, 0]
        assert _counts(venv.step(np.zeros(3, int))[0]) == [1, 1, 1]
        assert venv.get_attr("count") == (1, 1, 1)


@pytest.mark.parametrize("kind", BACKENDS)
def test_after_a_ctrl_c_nothing_stale_is_returned(kind: str, tmp_path: Path) -> None:
    with _gated(kind, tmp_path) as venv:
        venv.reset(seed=1)
        venv.step(np.zeros(3, int))
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.array([0, INTERRUPT, 0]))
        (tmp_path / "open").touch()
        for take_up in (venv.step_wait, lambda: venv.step(np.zeros(3, int))):
            before = venv._vector_steps
            try:
                counts = _counts(take_up()[0])
            except rookery.UsageError as error:
                assert "reset()" in str(error)
                assert venv._vector_steps == before
            else:
                assert counts == [before + 1] * 3
        assert _counts(venv.reset()[0]) == [0, 0, 0]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_step_that_was_interrupted_can_be_waited_for_again(kind: str, tmp_path: Path) -> None:
    with _gated(kind, tmp_path) as venv:
        venv.reset(seed=1)
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.array([0, INTERRUPT, 0]))
        (tmp_path / "open").touch()
        assert _counts(venv.step_wait()[0]) == [1, 1, 1]
        assert _counts(venv.step(np.zeros(3, int))[0]) == [2, 2, 2]


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_after_a_ctrl_c_the_error_of_another_call_offers_a_reset(kind: str, tmp_path: Path) -> None:
    with _gated(kind, tmp_path) as venv:
        venv.reset(seed=1)
        with pytest.raises(KeyboardInterrupt):
            venv.step(np.array([0, INTERRUPT, 0]))
        with pytest.raises(rookery.PendingCallError) as caught:
            venv.get_attr("count")
        assert "step_wait() ends it, reset() drops it" in str(caught.value)
        (tmp_path / "open").touch()
        venv.reset(seed=1)
        venv.step_async(np.zeros(3, int))  # nothing interrupts this one, so no reset may drop it
        with pytest.raises(rookery.PendingCallError) as caught:
            venv.get_attr("count")
        assert "step_wait() ends it" in str(caught.value)
        assert "reset()" not in str(caught.value)
        venv.step_wait()


@pytest.mark.parametrize("kind", BACKENDS)
def test_after_a_ctrl_c_a_vector_env_can_be_closed(kind: str, tmp_path: Path) -> None:
    venv = _gated(kind, tmp_path)
    venv.reset(seed=5)
    with pytest.raises(KeyboardInterrupt):
        venv.step(np.array([0, INTERRUPT, 0]))
    (tmp_path / "open").touch()
    venv.close(timeout=NO_HURRY_S)
    assert len(list(tmp_path.glob("closed-*"))) == 3


CALLS: dict[str, Callable[[rookery.VectorEnv], Any]] = {
    "step": lambda venv: venv.step(np.zeros(2, int)),
    "reset": lambda venv: venv.reset(seed=4),
    "reset-with-options": lambda venv: venv.reset(seed=4, options={"a": 1}),
    "call": lambda venv: venv.get_attr("count"),
    "partial": lambda venv: (venv.send(np.zeros(1, int), [1]), venv.recv(timeout=PATIENCE_S)),
}


@pytest.mark.timeout(3600)  # hundreds of resets one after the other, on a busy machine too
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.whole)])
@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_ctrl_c_at_any_line_is_mended_by_a_reset(
    kind: str, call: str, every: int, tmp_path: Path
) -> None:
    with _gated(kind, tmp_path, 2) as venv:
        venv.reset(seed=1)
        line = 0
        while is_interrupted(lambda: CALLS[call](venv), line):
            line += every
            assert _counts(_reset_or_receive(venv)) == [0, 0]
            assert _counts(venv.step(np.zeros(2, int))[0]) == [1, 1]
            assert venv.get_attr("count") == (1, 1)
        assert line > 10


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_ctrl_c_at_any_line_of_a_replacement_is_mended_by_a_reset(mode: str) -> None:
    faults = rookery.FaultPolicy("restart", max_restarts=10**6)
    with rookery.make_vec(Faulty, 2, "thread", 1, faults=faults, autoreset_mode=mode) as venv:

        def lose_a_worker() -> None:
            venv.step(np.array([0, Fault.RAISE]))
            venv.step(np.zeros(2, int))

        venv.reset(seed=1)
        venv.set_attr("label", "blue")  # a new worker is told so
        line = 0
        while is_interrupted(lose_a_worker, line):
            line += 1
            assert _counts(venv.reset(seed=3)[0]) == [0, 0]
            assert _counts(venv.step(np.zeros(2, int))[0]) == [1, 1]
            assert venv.get_attr("label") == ("blue", "blue")
        assert line > 100


@pytest.mark.slow
@pytest.mark.parametrize("take_up", ["reset", "step_wait"])
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_ctrl_c_at_any_line_of_a_step_that_tells_of_a_loss_is_mended(
    mode: str, take_up: str
) -> None:
    faults = rookery.FaultPolicy("restart", max_restarts=10**6)
    with rookery.make_vec(Faulty, 3, "thread", 1, faults=faults, autoreset_mode=mode) as venv:
        backend: Any = venv._backends[0]
        was_interrupted, line = True, 0
        while was_interrupted:
            venv.reset(seed=1)
            venv.send(np.array([Fault.RAISE]), [1])  # the others are lost while they are idle
            venv.recv(timeout=PATIENCE_S)
            if mode == "disabled":
                venv.reset(options={"reset_mask": np.array([False, True, False])})
            was_interrupted = is_interrupted(lambda: venv.step(np.zeros(3, int)), line)
            while backend._supervisor.is_up and backend._part.is_busy():
                time.sleep(0.001)  # until what was begun is done, which may be half of it
            if was_interrupted and take_up == "step_wait":
                with suppress(rookery.NoPendingCallError):  # it came before anything was begun
                    obs, _, _, truncated, _ = venv.step_wait(timeout=PATIENCE_S)
                    assert truncated.tolist() == [True, False, True]
                    # Its episode had ended, but where it was reset meanwhile.
                    assert _counts(obs)[1] == venv.get_attr("count")[1] == (mode != "next_step")
            assert _counts(venv.reset(seed=3)[0]) == [0, 0, 0]
            assert _counts(venv.step(np.zeros(3, int))[0]) == [1, 1, 1]
            line += 1
        assert line > 100


def test_only_lines_of_the_library_are_interrupted(tmp_path: Path) -> None:
    """A folder named `rookery` may hold site-packages: a clone with a virtual environment."""
    path = tmp_path / "rookery" / ".venv" / "lib" / "site-packages" / "other.py"
    names: dict[str, Any] = {}
    exec(compile("def call():\n    a = 1\n    return a\n", str(path), "exec"), names)
    assert not is_interrupted(names["call"], 0)
    assert is_interrupted(lambda: rookery.FaultPolicy("restart"), 0)


def _reset_or_receive(venv: rookery.VectorEnv) -> Any:
    """Observations of a reset; what was sent before the interruption is received first."""
    try:
        return venv.reset(seed=3)[0]
    except rookery.PendingCallError as error:
        assert "recv()" in str(error)
    with suppress(rookery.UsageError):
        venv.recv(timeout=PATIENCE_S)
    return venv.reset(seed=3)[0]


def test_a_worker_that_died_between_calls_leaves_no_call_under_way(tmp_path: Path) -> None:
    venv = _gated("process", tmp_path)
    venv.reset(seed=5)
    worker = psutil.Process(venv.pids[1])
    worker.kill()
    psutil.wait_procs([worker])
    with pytest.raises(rookery.WorkerDied, match="env 1"):
        venv.step(np.zeros(3, int))
    with pytest.raises(rookery.WorkerDied):
        venv.get_attr("count")
    assert _counts(venv.reset(seed=5)[0]) == [0, 0, 0]
    assert _counts(venv.step(np.zeros(3, int))[0]) == [1, 1, 1]
    venv.close(timeout=NO_HURRY_S)
    assert len(list(tmp_path.glob("closed-*"))) == 3


@pytest.mark.parametrize("options", [None, {"a": 1}])
def test_a_reset_after_a_worker_died_is_survived_where_restarts_are_allowed(
    options: Any, tmp_path: Path
) -> None:
    policy = rookery.FaultPolicy("restart")
    with make("process", Gated, kwargs={"folder": str(tmp_path)}, faults=policy) as venv:
        venv.reset(seed=5)
        worker = psutil.Process(venv.pids[1])
        worker.kill()
        psutil.wait_procs([worker])
        assert _counts(venv.reset(seed=5, options=options)[0]) == [0, 0]
        assert venv.get_attr("_seed") == (5, 6)


class TellsMore(gym.Env[Any, Any]):
    """Infos of steps have other keys than those of resets."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {"begun": 1}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return np.ones(2, np.float32), 1.0, False, False, {"made": 7}


@pytest.mark.skipif(sys.platform == "win32", reason="messages are read whole there")
@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
@pytest.mark.parametrize("on_fault", ["restart", "raise"])
def test_of_answers_that_a_lost_message_explains_none_is_returned(
    mode: str, on_fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of envs that answer one by one the first tells the keys of all, in a message of its own."""
    faults = rookery.FaultPolicy(on_fault)
    options: Any = {"autoreset_mode": mode, "faults": faults, "num_workers": 1}
    with rookery.make_vec(TellsMore, 3, "process", **options) as venv:
        venv.send_reset(seed=0)
        begun = 0
        while begun < 3:
            begun += len(venv.recv(timeout=PATIENCE_S)[-1])
        venv.send(np.zeros(3, np.int64))
        orders: Any = vars(venv)["_orders"]
        give_up = time.monotonic() + PATIENCE_S
        while (orders.asked != orders.answered).any():
            assert time.monotonic() < give_up
            time.sleep(0.001)

        def interrupted(*_: Any) -> Any:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(pipes, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            venv.recv(timeout=PATIENCE_S)
        told: dict[int, Any] = {}
        lost: set[int] = set()
        while len(told) + len(lost) < 3:
            try:
                _, _, _, truncated, infos, env_ids = venv.recv(timeout=PATIENCE_S)
            except rookery.WorkerDied as error:
                lost.update(error.env_ids)
                continue
            assert "made" not in infos
            told.update(zip(env_ids.tolist(), truncated.tolist(), strict=True))
        if on_fault == "restart":
            assert told == dict.fromkeys(range(3), True)
        else:
            assert not told and lost == {0, 1, 2}
        venv.reset(seed=0)
        assert venv.step(np.zeros(3, np.int64))[4]["made"].tolist() == [7, 7, 7]
