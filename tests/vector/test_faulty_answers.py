"""What an env returns or raises may refuse to travel; everybody else goes on."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gated_envs import NO_HURRY_S, Gated, make
from patience import PATIENCE_S

import rookery
from rookery.testing import Fault, Faulty

CARRIERS = ["serial", "thread", "process"]
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


class Stubborn(Gated):
    """Raises when it is closed, if asked; always notes that it was."""

    raises = False

    def close(self) -> None:
        super().close()
        if self.raises:
            raise ValueError(f"no close of {self._seed}")


@pytest.mark.parametrize("kind", CARRIERS)
def test_every_env_is_closed_though_several_fail_at_it(kind: str, tmp_path: Path) -> None:
    venv = make(kind, Stubborn, 4, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
    venv.set_attr("raises", [False, True, True, False])
    with pytest.raises(ValueError, match="no close of 6"):
        venv.close(timeout=NO_HURRY_S)
    assert len(list(tmp_path.iterdir())) == 4


class Threaded(Gated):
    """Leaves a thread that the interpreter would wait for."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        threading.Thread(target=threading.Event().wait).start()


def test_a_thread_that_an_env_has_left_keeps_no_worker_from_ending(tmp_path: Path) -> None:
    venv = make("process", Threaded, kwargs={"folder": str(tmp_path)})
    venv.reset(seed=5)
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


@pytest.mark.parametrize("kind", CARRIERS)
def test_ended_envs_are_refused_before_any_env_steps(kind: str) -> None:
    with make(kind, Faulty, 3, autoreset_mode="disabled") as venv:
        venv.reset(seed=1)
        venv.step(np.array([0, Fault.END, 0]))
        for _ in range(2):
            with pytest.raises(rookery.UsageError, match=r"envs \[1\]"):
                venv.step(np.zeros(3, int))
        assert venv.get_attr("count") == (1, 1, 1)
        venv.reset(options={"reset_mask": np.array([False, True, False])})
        assert venv.step(np.zeros(3, int))[0][:, 0].tolist() == [2, 1, 2]


@pytest.mark.parametrize("copy_", [True, False])
@pytest.mark.parametrize("kind", CARRIERS)
def test_a_reset_that_was_refused_changes_nothing(kind: str, copy_: bool) -> None:
    with make(kind, Faulty, 3, copy=copy_) as venv:
        venv.reset(seed=1)
        venv.step(np.zeros(3, int))
        refused: Any = {"a": threading.Lock()} if kind == "process" else "options"
        with pytest.raises(rookery.UsageError):
            venv.reset(options=refused)
        obs = venv.reset(options={"reset_mask": np.array([False, True, False])})[0]
        assert obs[:, 0].tolist() == [1, 0, 1]
        with pytest.raises(rookery.UsageError):
            venv.reset(options=[None])
        venv.send(np.zeros(1, int), [2])
        assert venv.recv(timeout=PATIENCE_S)[0][0, 0] == 2
        assert venv.step(np.zeros(3, int))[0][:, 0].tolist() == [2, 1, 3]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", CARRIERS)
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
    with pytest.raises(rookery.ConfigError, match=r"(?s)0 and 1.*one and the same"):
        ThreadVectorEnv([lambda: env] * 4, num_workers=4)


@pytest.mark.parametrize("kind", CARRIERS)
def test_copying_and_pickling_say_what_to_do_instead(kind: str) -> None:
    with make(kind, Faulty) as venv:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(rookery.UsageError, match="Pass the function that makes it"):
                attempt(venv)


@pytest.mark.parametrize("kind", CARRIERS)
def test_an_action_before_the_first_reset_is_told_as_such(kind: str) -> None:
    with make(kind, Faulty) as venv:
        with pytest.raises(KeyError) as caught:
            venv.step(np.array([0, Fault.RAISE]))
        assert "never reset" in str(caught.value) and "steps after" not in str(caught.value)


@pytest.mark.parametrize("kind", WORKERS)
def test_polling_a_step_leaves_its_deadline_alone(kind: str, tmp_path: Path) -> None:
    policy = rookery.FaultPolicy(step_timeout_s=1.0)
    with make(kind, Gated, kwargs={"folder": str(tmp_path)}, faults=policy) as venv:
        venv.reset(seed=1)
        venv.step_async(np.array([0, 1]))
        messages = [""]
        while "step_wait() may be called again" in messages[-1] or len(messages) == 1:
            assert len(messages) < 200
            with pytest.raises(rookery.WorkerTimeout) as caught:
                venv.step_wait(timeout=0.3)
            messages.append(str(caught.value))
        assert "Env 1 " in messages[-1] and "did not finish its step within 1.0 s" in messages[-1]
        (tmp_path / "open").touch()


class Clock:
    """A clock on which any two looks are hours apart."""

    def __init__(self) -> None:
        self._now = 0.0

    def perf_counter(self) -> float:
        self._now += 10_000.0
        return self._now


class Dozing(Faulty):
    """Takes a while to answer a call."""

    def doze(self) -> int:
        time.sleep(1.0)
        return 7


@pytest.mark.parametrize("kind", WORKERS)
def test_a_call_after_an_env_raised_has_no_deadline_of_a_step(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(kind, Dozing, faults=rookery.FaultPolicy(step_timeout_s=1000.0)) as venv:
        venv.reset(seed=1)
        with pytest.raises(KeyError):
            venv.step(np.array([0, Fault.RAISE]))
        monkeypatch.setattr("rookery.worker.watch.time", Clock())
        assert venv.call("doze") == (7, 7)


def test_no_ring_is_left_of_answers_that_were_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rookery.worker.doorbell import Doorbell

    with make("process", Gated, 4, kwargs={"folder": str(tmp_path)}) as venv:
        venv.async_reset(seed=1)
        venv.recv(min_envs=4, timeout=PATIENCE_S)
        for _ in range(300):
            venv.send(np.zeros(4, int))
            venv.recv(min_envs=4, timeout=PATIENCE_S)
        venv.send(np.array([1]), [0])
        waits, wait = [], Doorbell.wait

        def counted(bell: Any, *args: Any, **kwargs: Any) -> bool:
            waits.append(bell)
            return wait(bell, *args, **kwargs)

        monkeypatch.setattr(Doorbell, "wait", counted)
        with pytest.raises(rookery.WorkerTimeout):
            venv.recv(timeout=0.05)
        assert len(waits) < 10
        (tmp_path / "open").touch()


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
