"""The order of calls: what may follow what, time-outs, closing. Gymnasium's and ours alike."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from contract_backends import NUM_ENVS, Open, cues, scripted
from contract_envs import Cue
from patience import PATIENCE_S

import rookery

BEGIN: dict[str, Callable[[Any], Any]] = {
    "reset": lambda venv: venv.reset_async(seed=1),
    "step": lambda venv: venv.step_async(cues(0, 0, 0)),
    "call": lambda venv: venv.call_async("add", 1),
}
WAIT: dict[str, Callable[..., Any]] = {
    "reset": lambda venv, **options: venv.reset_wait(**options),
    "step": lambda venv, **options: venv.step_wait(**options),
    "call": lambda venv, **options: venv.call_wait(**options),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "reset": lambda venv: venv.reset(),
    "step": lambda venv: venv.step(cues(0, 0, 0)),
    "call": lambda venv: venv.call("add", 1),
    "get_attr": lambda venv: venv.get_attr("label"),
    "set_attr": lambda venv: venv.set_attr("label", "x"),
    "render": lambda venv: venv.render(),
}

# AsyncVectorEnv warns when it is closed while a call is under way.
CLOSES_BUSY = pytest.mark.filterwarnings("ignore:.*Calling `close` while waiting:UserWarning")


@pytest.mark.parametrize("call", list(BEGIN))
def test_a_call_in_two_parts_returns_what_the_call_does(open_async: Open, call: str) -> None:
    venv = open_async()
    venv.reset(seed=1)
    BEGIN[call](venv)
    result = WAIT[call](venv)
    if call == "reset":
        assert result[0].tolist() == [[0, 2]] * 3
    elif call == "step":
        assert result[0].tolist() == [[1, 1]] * 3 and len(result) == 5
    else:
        assert result == (1, 1, 1)


@pytest.mark.parametrize("call", list(WAIT))
def test_waiting_for_what_was_not_begun_is_an_error(open_async: Open, call: str) -> None:
    venv = open_async()
    venv.reset()
    with pytest.raises(gym.error.NoAsyncCallError) as caught:
        WAIT[call](venv)
    assert caught.value.name == call
    assert venv.step(cues(0, 0, 0))[0][:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("waited", list(WAIT))
@pytest.mark.parametrize("begun", list(BEGIN))
def test_waiting_for_another_call_than_the_begun_one_is_an_error(
    open_async: Open, begun: str, waited: str
) -> None:
    venv = open_async()
    venv.reset()
    BEGIN[begun](venv)
    if waited != begun:
        with pytest.raises(gym.error.NoAsyncCallError):
            WAIT[waited](venv)
    assert WAIT[begun](venv) is not None


@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize("begun", list(BEGIN))
def test_a_call_while_another_is_under_way_is_an_error(
    open_async: Open, begun: str, call: str
) -> None:
    venv = open_async()
    venv.reset()
    BEGIN[begun](venv)
    with pytest.raises(gym.error.AlreadyPendingCallError) as caught:
        CALLS[call](venv)
    assert caught.value.name == begun
    assert WAIT[begun](venv) is not None
    assert CALLS[call](venv) is not None or call == "set_attr"


def test_the_env_stays_where_it_was_after_a_refused_call(open_async: Open) -> None:
    venv = open_async()
    venv.reset()
    venv.step_async(cues(0, 0, 0))
    with pytest.raises(gym.error.AlreadyPendingCallError):
        venv.step_async(cues(Cue.TERMINATE, 0, 0))
    obs, _, terminated, *_ = venv.step_wait()
    assert obs[:, 0].tolist() == [1, 1, 1] and not terminated.any()


# ---------------------------------------------------------------- time-outs


@CLOSES_BUSY
def test_a_step_that_is_not_done_in_time_is_multiprocessings_timeout_error(
    open_workers: Open, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    venv = open_workers(scripted(gate=gate))
    venv.reset()
    venv.step_async(cues(0, 0, Cue.WAIT))
    with pytest.raises(multiprocessing.TimeoutError):
        venv.step_wait(timeout=0.01)
    gate.touch()


def test_our_step_goes_on_after_a_time_out(tmp_path: Path) -> None:
    """Gymnasium forgets the step, and takes its late results for those of the next."""
    gate = tmp_path / "gate"
    with rookery.ProcessVectorEnv(scripted(gate=gate), num_workers=2) as venv:
        venv.reset()
        venv.step_async(cues(0, 0, Cue.WAIT))
        for _ in range(2):
            with pytest.raises(multiprocessing.TimeoutError):
                venv.step_wait(timeout=0.01)
        gate.touch()
        assert venv.step_wait()[0][:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("call", list(BEGIN))
def test_a_time_out_that_is_long_enough_changes_nothing(open_async: Open, call: str) -> None:
    venv = open_async()
    venv.reset()
    BEGIN[call](venv)
    assert WAIT[call](venv, timeout=PATIENCE_S) is not None


# ---------------------------------------------------------------- closing


def test_closing_twice_is_fine(open_any: Open) -> None:
    venv = open_any()
    venv.reset()
    venv.close()
    assert venv.closed
    venv.close()


@pytest.mark.parametrize("call", list(CALLS))
def test_a_closed_env_refuses_every_call(open_async: Open, call: str) -> None:
    """SyncVectorEnv goes on stepping its closed envs."""
    venv = open_async()
    venv.reset()
    venv.close()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        CALLS[call](venv)


@pytest.mark.parametrize("call", list(BEGIN))
def test_a_closed_env_refuses_both_parts_of_every_call(open_async: Open, call: str) -> None:
    venv = open_async()
    venv.close()
    with pytest.raises(gym.error.ClosedEnvironmentError):
        BEGIN[call](venv)
    with pytest.raises(gym.error.ClosedEnvironmentError):
        WAIT[call](venv)


@CLOSES_BUSY
@pytest.mark.parametrize("call", list(BEGIN))
def test_closing_while_a_call_is_under_way_waits_for_it(
    open_async: Open, call: str, tmp_path: Path
) -> None:
    venv = open_async([partial(Leaving, tmp_path / str(i)) for i in range(NUM_ENVS)])
    venv.reset()
    BEGIN[call](venv)
    venv.close()
    assert venv.closed
    assert {path.read_text() for path in tmp_path.iterdir()} == {call}
    assert len(list(tmp_path.iterdir())) == NUM_ENVS


@CLOSES_BUSY
@pytest.mark.parametrize("how", [{"terminate": True}, {"timeout": 0.0}, {"timeout": 0.01}])
def test_closing_does_not_wait_longer_than_it_may(
    open_workers: Open, how: dict[str, Any], tmp_path: Path
) -> None:
    venv = open_workers(scripted(gate=tmp_path / "never"))
    venv.reset()
    venv.step_async(cues(0, 0, Cue.WAIT))
    venv.close(**how)
    assert venv.closed


def test_terminating_an_idle_env_is_not_an_error(open_workers: Open) -> None:
    venv = open_workers()
    venv.reset()
    venv.close(terminate=True)
    assert venv.closed


def test_every_env_is_closed(open_any: Open, tmp_path: Path) -> None:
    venv = open_any([partial(Leaving, tmp_path / str(i)) for i in range(NUM_ENVS)])
    venv.reset()
    venv.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


class Leaving(gym.Env[Any, Any]):
    """Notes in a file, when it is closed after its first reset, what it was asked for last."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._last = "first reset" if not self._last else "reset"
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._last = "step"
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def add(self, a: int, b: int = 0) -> int:
        self._last = "call"
        return a + b

    def close(self) -> None:
        if self._last:
            self._path.write_text(self._last)
