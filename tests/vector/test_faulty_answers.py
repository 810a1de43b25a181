"""What an env returns or raises may refuse to travel; everybody else goes on."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gated_envs import NO_HURRY_S, Gated, make
from patience import PATIENCE_S

import rookery
from rookery.testing import Fault, Faulty

BACKENDS = ["serial", "thread", "process"]
WORKERS = ["thread", "process"]


class Bad(Exception):
    """Pickle makes it anew from one argument, which is one too few."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unloadable:
    """Can be pickled, and not unpickled."""

    def __reduce__(self) -> Any:
        return _raise, ()


def _raise() -> Any:
    raise ArithmeticError("cannot be loaded")


def _raise_bad(env: Any) -> Any:
    raise Bad(1, "two")


@pytest.mark.parametrize("what", ["exception", "object", "raised"])
def test_a_result_that_cannot_be_rebuilt_is_an_error_of_this_call_alone(
    what: str, tmp_path: Path
) -> None:
    functions = {
        "exception": lambda env: Bad(1, "two"),
        "object": lambda env: Unloadable(),
        "raised": _raise_bad,
    }
    venv = make("process", Gated, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
    for _ in range(2):
        with pytest.raises(rookery.WorkerError) as caught:
            venv.apply(functions[what])
        assert "two" in str(caught.value) or "cannot be rebuilt" in str(caught.value)
        assert venv.get_attr("count") == (0, 0)
    assert venv.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 1]
    venv.close(timeout=NO_HURRY_S)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("kind", WORKERS)
def test_after_one_death_the_others_can_be_received(kind: str, tmp_path: Path) -> None:
    fault = Fault.KILL if kind == "process" else Fault.RAISE
    with make(kind, Faulty, 3) as venv:
        venv.reset(seed=1)
        venv.send(np.array([0, fault, Fault.PAUSE]))
        received, errors = set(), 0
        while len(received) + errors < 3:
            try:
                received |= set(venv.recv(timeout=PATIENCE_S)[5].tolist())
            except rookery.WorkerError as error:
                assert error.env_ids == (1,)
                errors += 1
        assert received == {0, 2} and errors == 1


@pytest.mark.parametrize("kind", BACKENDS)
def test_ended_envs_are_refused_before_any_env_steps(kind: str) -> None:
    with make(kind, Faulty, 3, autoreset_mode="disabled") as venv:
        venv.reset(seed=1)
        venv.step(np.array([0, Fault.END, 0]))
        for _ in range(2):
            with pytest.raises(rookery.UsageError, match=r"[Ee]nvs \[1\]"):
                venv.step(np.zeros(3, int))
        assert venv.get_attr("count") == (1, 1, 1)
        venv.reset(options={"reset_mask": np.array([False, True, False])})
        assert venv.step(np.zeros(3, int))[0][:, 0].tolist() == [2, 1, 2]


@pytest.mark.parametrize("copy_", [True, False])
@pytest.mark.parametrize("kind", BACKENDS)
def test_a_reset_that_was_refused_changes_nothing(kind: str, copy_: bool) -> None:
    with make(kind, Faulty, 3, copy=copy_) as venv:
        venv.reset(seed=1)
        refused: Any = {"a": threading.Lock()} if kind == "process" else "options"
        obs = venv.step(np.zeros(3, int))[0]
        with pytest.raises(rookery.UsageError):
            venv.reset(options=refused)
        venv.step(np.zeros(3, int))
        assert obs[:, 0].tolist() == [1, 1, 1]  # views are valid until the step after the next
        with pytest.raises(rookery.UsageError):
            venv.reset(options=refused)
        venv.send(np.zeros(1, int), [2])
        obs, reward, *_ = venv.recv(timeout=PATIENCE_S)
        assert obs[0, 0] == 3 and reward[0] == 1
        obs = venv.reset(options={"reset_mask": np.array([False, True, False])})[0]
        assert obs[:, 0].tolist() == [2, 0, 3]
        with pytest.raises(rookery.UsageError):
            venv.reset(options=[None])
        assert venv.step(np.zeros(3, int))[0][:, 0].tolist() == [3, 1, 4]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", BACKENDS)
def test_one_env_for_several_places_is_refused(kind: str, count: int) -> None:
    env = Faulty()
    options = {} if kind == "serial" else {"num_workers": count}
    with pytest.raises(rookery.ConfigError, match="one and the same"):
        if kind == "serial":
            rookery.SerialVectorEnv([lambda: env] * 4)
        elif kind == "process":
            rookery.ProcessVectorEnv([lambda: env] * 4, **options)
        else:
            from rookery.vector.thread import ThreadVectorEnv

            ThreadVectorEnv([lambda: env] * 4, **options)


def test_one_env_for_several_threads_is_refused() -> None:
    from rookery.vector.thread import ThreadVectorEnv

    env = Faulty()
    with pytest.raises(rookery.ConfigError, match=r"(?s)0 and 1.*the same object"):
        ThreadVectorEnv([lambda: env] * 4, num_workers=4)


@pytest.mark.parametrize("kind", BACKENDS)
def test_copying_and_pickling_say_what_to_do_instead(kind: str) -> None:
    with make(kind, Faulty) as venv:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(rookery.UsageError, match="Pass a function that creates it"):
                attempt(venv)


@pytest.mark.parametrize("kind", BACKENDS)
def test_an_action_before_the_first_reset_is_told_as_such(kind: str) -> None:
    with make(kind, Faulty) as venv:
        with pytest.raises(KeyError) as caught:
            venv.step(np.array([0, Fault.RAISE]))
        assert "never reset" in str(caught.value) and "steps after" not in str(caught.value)


@pytest.mark.parametrize("kind", WORKERS)
def test_polling_a_step_leaves_its_deadline_alone(kind: str, tmp_path: Path) -> None:
    policy = rookery.FaultPolicy(step_timeout_s=1.0)
    # One env, which waits: no other can be late in its place.
    with make(kind, Gated, 1, kwargs={"folder": str(tmp_path)}, faults=policy) as venv:
        venv.reset(seed=1)
        venv.step_async(np.array([1]))
        messages = [""]
        while "step_wait() may be called again" in messages[-1] or len(messages) == 1:
            assert len(messages) < 200
            with pytest.raises(rookery.WorkerTimeout) as caught:
                venv.step_wait(timeout=0.3)
            messages.append(str(caught.value))
        assert "Env 0 " in messages[-1] and "did not finish its step within 1.0 s" in messages[-1]
        (tmp_path / "open").touch()


class Clock:
    """A clock on which any two looks are hours apart; leaves a file after some of them."""

    def __init__(self, after_looks: Path) -> None:
        self._looks = 0
        self._after_looks = after_looks

    def perf_counter(self) -> float:
        self._looks += 1
        if self._looks == 5:
            self._after_looks.touch()
        return self._looks * 10_000.0


class Dozing(Faulty):
    """Answers a call once a file exists."""

    def doze(self, until: Path) -> int:
        while not until.exists():
            time.sleep(0.001)
        return 7


@pytest.mark.parametrize("kind", WORKERS)
def test_a_call_after_an_env_raised_has_no_deadline_of_a_step(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = rookery.FaultPolicy(step_timeout_s=1000.0)
    with make(kind, Dozing, num_workers=1, faults=policy) as venv:
        venv.reset(seed=1)
        with pytest.raises(KeyError):
            venv.step(np.array([0, Fault.RAISE]))
        after_looks = tmp_path / "looked"
        monkeypatch.setattr("rookery.worker.watch.time", Clock(after_looks))
        assert venv.call("doze", after_looks) == (7, 7)


@pytest.mark.parametrize("kind", WORKERS)
def test_an_answer_that_comes_in_the_middle_of_a_look_is_not_taken_without_its_message(
    kind: str, tmp_path: Path
) -> None:
    with make(kind, Faulty) as venv:
        venv.reset(seed=1)
        poll, orders = venv._answers._poll, venv._orders

        def poll_and_wait_for_the_answer(deadline: float | None) -> None:
            poll(deadline)
            while (orders.asked != orders.answered).any():
                pass

        venv._answers._poll = poll_and_wait_for_the_answer  # type: ignore[method-assign]
        venv.send(np.array([Fault.RAISE]), [1])
        with pytest.raises(KeyError):
            venv.recv(timeout=PATIENCE_S)


class TwoParts(gym.Env[Any, Any]):
    """Shows its step count twice; with a negative action the second part has a wrong shape."""

    observation_space = gym.spaces.Dict(
        {key: gym.spaces.Box(0, 99, (1,), np.int64) for key in ("a", "b")}
    )
    action_space = gym.spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return self.shown(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        obs = self.shown() if action >= 0 else {**self.shown(), "b": np.zeros(7, np.int64)}
        return obs, 1.0, False, False, {}

    def shown(self) -> dict[str, Any]:
        return {key: np.array([self.count]) for key in ("a", "b")}


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("kind", WORKERS)
def test_an_observation_that_fails_half_written_is_replaced_by_the_last_whole_one(
    kind: str, mode: str
) -> None:
    with make(kind, TwoParts, faults=rookery.FaultPolicy("restart"), autoreset_mode=mode) as venv:
        venv.reset(seed=0)
        for action in (0, 0, -1):
            venv.send(np.array([action]), [1])
            obs, _, _, truncated, infos, env_ids = venv.recv(timeout=PATIENCE_S)
        assert env_ids.tolist() == [1] and truncated.tolist() == [True]
        last = infos["final_obs"][0] if mode == "same_step" else {key: obs[key][0] for key in obs}
        assert {key: part.tolist() for key, part in last.items()} == {"a": [2], "b": [2]}
        if mode == "same_step":
            assert [obs[key].tolist() for key in ("a", "b")] == [[[0]], [[0]]]
