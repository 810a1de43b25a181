"""Envs whose worker was not replaced: everybody else goes on, and a reset starts a new one."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from patience import DEADLINE_S, PATIENCE_S

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty
from rookery.worker.orders import Order, OrderPart
from rookery.worker.supervisor import Supervisor
from rookery.worker.thread import WorkerThread

KILL = np.array([0, 0, 0, Fault.KILL])


def _make(faults: FaultPolicy | None = None) -> rookery.VectorEnv:
    return rookery.make_vec(Faulty, 4, "process", 2, faults=faults)


def test_past_the_budget_a_reset_starts_a_new_worker_again_and_again() -> None:
    with _make(FaultPolicy("restart", max_restarts=0)) as venv:
        venv.reset()
        for _ in range(2):
            with pytest.raises(rookery.WorkerDied, match="SIGKILL"):
                venv.step(KILL)
            with pytest.raises(rookery.WorkerDied, match=r"reset\(\) starts a new one"):
                venv.step(np.zeros(4, int))
            with pytest.raises(rookery.WorkerDied, match=r"reset\(\) starts a new one"):
                venv.call("double", 1)
            assert venv.reset()[0][:, 0].tolist() == [0] * 4
            assert venv.step(np.zeros(4, int))[0][:, 0].tolist() == [1] * 4


class Stubborn(Faulty):
    """Cannot have its label set twice."""

    @property
    def label(self) -> str:
        return self._label

    @label.setter
    def label(self, value: str) -> None:
        if value == "doomed" and self.count == 0:
            raise ValueError("no such label")
        self._label = value


def test_a_worker_that_cannot_be_brought_up_to_date_is_not_waited_for() -> None:
    faults = FaultPolicy("restart", max_restarts=1)
    with rookery.make_vec(Stubborn, 4, "process", 2, faults=faults) as venv:
        venv.reset()
        venv.step(np.zeros(4, int))
        venv.set_attr("label", "doomed")
        assert venv.step(KILL)[3].tolist() == [False, False, True, True]
        with pytest.raises(ValueError, match="no such label"):
            venv.call("double", 1)
        with pytest.raises(rookery.WorkerDied, match=r"reset\(\) starts a new one"):
            venv.call("double", 1)
        with pytest.raises(ValueError, match="no such label"):
            venv.reset()


@pytest.mark.parametrize("faults", [None, FaultPolicy("restart", max_restarts=0)])
def test_envs_of_other_workers_are_received_however_often_all_are_looked_after(
    faults: FaultPolicy | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.worker.worker_backend._LOOK_S", 0.0)
    monkeypatch.setattr("rookery.vector.calls._LOOK_S", 0.0)
    with _make(faults) as venv:
        venv.reset()
        venv.send(np.array([Fault.PAUSE, 0, Fault.KILL]), [1, 2, 3])
        with pytest.raises(rookery.WorkerDied):
            venv.recv(min_envs=3)
        received: list[int] = []
        while 1 not in received:
            try:
                received += venv.recv()[-1].tolist()
            except rookery.WorkerDied:
                continue
        with pytest.raises(rookery.NoPendingCallError):
            venv.recv()


def test_what_could_not_be_sent_is_not_told_to_a_new_worker() -> None:
    with _make(FaultPolicy("restart")) as venv:
        venv.reset()
        with pytest.raises(rookery.PicklingError):
            venv.set_attr("label", threading.Lock())
        venv.step(np.array([Fault.KILL, 0, 0, 0]))
        assert venv.step(np.zeros(4, int))[0][:, 0].tolist() == [0, 0, 2, 2]


class Picky(Faulty):
    """Takes short labels alone, and has a number that cannot be set."""

    @property
    def number(self) -> int:
        return 7

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "label" and len(value) > 5:
            raise ValueError(f"too long: {value}")
        super().__setattr__(name, value)


@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_what_an_env_refused_to_be_set_is_not_told_to_a_new_worker(on_fault: Any) -> None:
    with rookery.make_vec(Picky, 2, "process", num_workers=2, faults=FaultPolicy(on_fault)) as venv:
        venv.reset()
        venv.set_attr("label", "short")
        for name, value in [("label", "not short"), ("number", 3)]:
            with pytest.raises(rookery.EnvFailed, match=f"setting of '{name}'"):
                venv.set_attr(name, value)
        with suppress(rookery.WorkerDied):
            venv.step(np.array([Fault.KILL, 0]))
        assert venv.reset()[0][:, 0].tolist() == [0, 0]
        assert venv.get_attr("label") == ("short", "short")


def test_a_deadline_while_a_worker_is_replaced_costs_no_further_restart() -> None:
    has_begun, may_build = threading.Event(), threading.Event()

    class SlowToReplace(Faulty):
        def __init__(self) -> None:
            super().__init__()
            if has_begun.is_set():
                may_build.wait(PATIENCE_S)

    faults = FaultPolicy("restart", max_restarts=1)
    with rookery.make_vec(
        SlowToReplace, 1, "thread", faults=faults, autoreset_mode="same_step"
    ) as venv:
        venv.reset()
        has_begun.set()
        venv.step_async(np.array([Fault.RAISE]))
        for _ in range(3):
            with pytest.raises(rookery.WorkerTimeout, match="may be called again"):
                venv.step_wait(timeout=0.2)
        may_build.set()
        assert venv.step_wait(timeout=PATIENCE_S)[3].tolist() == [True]
        assert venv.step(np.zeros(1, int))[0][:, 0].tolist() == [1]


class Optioned(Faulty):
    """Remembers what its last reset was given."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.options = options
        return super().reset(seed=seed)


@pytest.mark.parametrize("on_fault", ["raise", "restart"])
def test_a_reset_with_options_starts_a_new_worker_too(on_fault: Any) -> None:
    faults = FaultPolicy(on_fault, max_restarts=0)
    with rookery.make_vec(Optioned, 4, "process", 2, faults=faults) as venv:
        venv.reset()
        with pytest.raises(rookery.WorkerDied):
            venv.step(KILL)
        venv.reset(options={"any": "thing"})
        assert venv.get_attr("options") == ({"any": "thing"},) * 4
        assert venv.step(np.zeros(4, int))[0][:, 0].tolist() == [1] * 4


def test_options_are_given_to_those_alone_who_are_reset() -> None:
    with rookery.make_vec(Optioned, 4, "process", 2) as venv:
        venv.reset()
        with pytest.raises(rookery.WorkerDied):
            venv.step(KILL)
        mask = np.array([True, False, False, False])
        venv.reset(options={"reset_mask": mask, "any": "thing"})  # the lost ones are left alone
        with pytest.raises(rookery.WorkerDied, match=r"reset\(\) starts a new one"):
            venv.step(np.zeros(4, int))


class Labelled(Faulty):
    """Remembers which label it had when it was reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.label_at_reset = self.label
        return super().reset(seed=seed, options=options)


def test_a_new_worker_knows_its_attributes_before_it_carries_out_a_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have = Supervisor._have

    def have_late(supervisor: Any, *args: Any) -> None:
        end = time.perf_counter() + 0.5  # a worker that does not wait to be told is done by then
        while supervisor._part.is_busy() and time.perf_counter() < end:
            time.sleep(0.01)
        have(supervisor, *args)

    monkeypatch.setattr(Supervisor, "_have", have_late)
    faults = FaultPolicy("restart")
    with rookery.make_vec(
        Labelled, 4, "process", 2, faults=faults, autoreset_mode="same_step"
    ) as venv:
        venv.reset()
        venv.set_attr("label", "blue")
        venv.step(KILL)
        assert venv.get_attr("label_at_reset")[2:] == ("blue", "blue")


def test_a_step_that_is_cut_short_after_a_reset_with_options_is_closed() -> None:
    faults = FaultPolicy("restart")
    with rookery.make_vec(
        Faulty, 4, "process", 2, faults=faults, autoreset_mode="same_step"
    ) as venv:
        venv.reset(options={"any": "thing"})
        obs, _, _, truncated, _ = venv.step(KILL)
        assert truncated.tolist() == [False, False, True, True]
        assert obs[:, 0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_thread_that_was_given_up_carries_out_no_order_of_its_successor(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[WorkerThread] = []
    ask = OrderPart.ask

    def kill(worker: WorkerThread) -> None:
        worker._is_given_up = True
        given_up.append(worker)

    def ask_and_wake_the_old(part: OrderPart, order: Order) -> None:
        ask(part, order)
        while given_up:
            given_up[-1].bells.go.ring()
            while given_up[-1].is_alive() and part.is_busy():
                time.sleep(0.001)
            given_up.pop()

    monkeypatch.setattr(WorkerThread, "kill", kill)
    monkeypatch.setattr(OrderPart, "ask", ask_and_wake_the_old)
    faults = FaultPolicy("restart")
    with rookery.make_vec(Faulty, 3, "thread", 1, faults=faults, autoreset_mode=mode) as venv:
        for _ in range(3):  # the first thread has seen fewer requests than those that follow it
            venv.reset(seed=1)
            venv.send(np.array([Fault.RAISE]), [1])
            venv.recv(timeout=PATIENCE_S)
            venv.reset_async(options={"reset_mask": np.array([False, True, False])})
            venv.reset_wait(timeout=DEADLINE_S)
            assert venv.step(np.zeros(3, int))[3].tolist() == [True, False, True]
