"""One of everything that a vector env can be asked, with a count of what must come out of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting_envs import LARGE, LARGE_BYTES
from traps import Trap, is_stopped

import rookery
from rookery import FaultPolicy
from rookery.worker.supervisor import Supervisor

LIMIT_S = 3600.0  # of deadlines, which pass when `deadlines_pass_when_stopped` says so


class Ledger:
    """What a vector env of Counting envs must show, call by call.

    Args:
        make: makes the vector env.
        ids: envs of the worker that a trap is for.
        restarts: whether faults are to be survived.
        num_envs: how many envs there are.

    Attributes:
        errors: that were raised, with the operation.
        faults: how many transitions were closed because of a fault.
        operations: how many were asked for.
    """

    def __init__(
        self,
        make: Callable[[], rookery.VectorEnv],
        ids: tuple[int, ...],
        restarts: bool,
        num_envs: int = 4,
    ) -> None:
        self.errors: list[tuple[str, rookery.WorkerError]] = []
        self.faults = self.operations = 0
        self._make, self._ids, self._restarts = make, ids, restarts
        self._num_envs = num_envs
        self.venv: Any = None
        self._count = np.zeros(num_envs)
        self._is_over = np.zeros(num_envs, np.bool_)  # closed by a fault, and not yet reset

    def do(self, name: str) -> None:
        """Do one operation; an error that a fault may raise here is kept, and mended by a reset."""
        self.operations += 1
        try:
            getattr(self, name)()
        except rookery.WorkerError as error:
            self._check(name, error)
            self._mend(name)

    def _check(self, name: str, error: rookery.WorkerError) -> None:
        self.errors.append((name, error))
        if not isinstance(error, (rookery.WorkerDied, rookery.WorkerTimeout)) or name == "close":
            raise error
        assert set(error.env_ids) <= set(self._ids), error
        assert not self._restarts or name in MAY_RAISE, (name, error)

    def _mend(self, name: str) -> None:
        while name in ("send", "send_reset"):  # answers of the others
            try:
                self.venv.recv()
            except rookery.NoPendingCallError:
                break
        mending = "make" if self.venv is None else "reset"
        for _ in range(5):
            try:
                return getattr(self, mending)()
            except rookery.WorkerError as error:
                self.errors.append((mending, error))
        raise AssertionError(f"{mending} fails again and again") from self.errors[-1][1]

    def make(self) -> None:
        self.venv = self._make()

    def reset(self) -> None:
        self._was_reset(*self.venv.reset(seed=10))

    def reset_with_options(self) -> None:
        self._was_reset(*self.venv.reset(seed=10, options={"any": "thing"}))

    def _was_reset(self, obs: Any, infos: Any) -> None:
        assert obs[:, 0].tolist() == [0] * self._num_envs and not infos
        self._count[:] = 0
        self._is_over[:] = False

    def step(self) -> None:
        self._step(0)

    def step_large(self) -> None:
        self._step(LARGE)

    def _step(self, action: int) -> None:
        if self.venv.autoreset_mode is gym.vector.AutoresetMode.DISABLED and self._is_over.any():
            self.venv.reset(options={"reset_mask": self._is_over.copy()})
            self._count[self._is_over] = 0
            self._is_over[:] = False
        self._stepped(
            np.arange(self._num_envs), action, self.venv.step(np.full(self._num_envs, action))
        )

    def send(self) -> None:
        if self._is_over.any():
            self._step(0)
        self.venv.send(np.zeros(self._num_envs, np.int64))
        self._receive_all(0)

    def send_reset(self) -> None:
        self.venv.send_reset()
        self._receive_all(None)

    def _receive_all(self, action: int | None) -> None:
        left = set(range(self._num_envs))
        while left:
            *results, ids = self.venv.recv()
            left -= set(ids.tolist())
            if action is None:
                assert results[0][:, 0].tolist() == [0] * len(ids)
                self._count[ids], self._is_over[ids] = 0, False
            else:
                self._stepped(ids, action, results)

    def _stepped(self, ids: Any, action: int, results: Any) -> None:
        obs, reward, terminated, truncated, info = results
        fault = np.asarray(info.get("_fault", np.zeros(len(ids), np.bool_)))
        same_step = self.venv.autoreset_mode is gym.vector.AutoresetMode.SAME_STEP
        was_over = self._is_over[ids]
        assert not (fault & was_over).any(), "an episode that was over was closed again"
        expected = np.where(was_over, 0, self._count[ids] + 1)
        expected = np.where(fault, 0 if same_step else self._count[ids], expected)
        assert obs[:, 0].tolist() == expected.tolist()
        assert reward.tolist() == np.where(fault | was_over, 0.0, 1.0).tolist()
        assert truncated.tolist() == fault.tolist() and not terminated.any()
        assert set(ids[fault].tolist()) <= set(self._ids)
        for place in np.flatnonzero(fault).tolist():
            assert set(info["fault"]["env_ids"][place]) == set(self._ids)
            assert info["fault"]["cause"][place]
            if same_step:
                assert info["final_obs"][place][0] == self._count[ids[place]]
        for place in np.flatnonzero(~fault & ~was_over).tolist():
            if action == LARGE:
                assert (info["frame"][place] == expected[place]).all()
                assert len(info["frame"][place]) == LARGE_BYTES
        self._count[ids] = expected
        self._is_over[ids] = fault & ~np.bool_(same_step)
        self.faults += int(fault.sum())

    def call(self) -> None:
        assert self.venv.call("double", 21) == (42,) * self._num_envs

    def set_attr(self) -> None:
        self.venv.set_attr("label", list("abcdef")[: self._num_envs])

    def get_attr(self) -> None:
        labels = self.venv.get_attr("label")
        assert all(label in (own, "none") for label, own in zip(labels, "abcdef", strict=False))

    def close(self) -> None:
        self.venv.close()


# What is done: every trap lies in one of them, and those before and after must go well.
OPERATIONS = (
    "make",
    "set_attr",
    "reset",
    "step",
    "step_large",
    "step",  # with larger rows
    "call",
    "reset_with_options",
    "step",
    "send",
    "send_reset",
    "step",
    "get_attr",
    "close",
)
# Operations that a fault may make fail although faults are to be survived: what is built first has
# no predecessor, and a call cannot be made twice.
MAY_RAISE = ("make", "set_attr", "get_attr", "call")


def policy(on_fault: str, how: str) -> FaultPolicy:
    """The policy under which traps are sprung."""
    limit_s = LIMIT_S if how == "stop" else None
    return FaultPolicy(
        on_fault,  # type: ignore[arg-type]
        max_restarts=10,
        step_timeout_s=limit_s,
        reset_timeout_s=limit_s,
        make_timeout_s=limit_s,
    )


@contextmanager
def deadlines_pass_when_stopped(trap: Trap) -> Iterator[None]:
    """Within the block, time flies for whoever looks after the worker that has stopped itself.

    So limits can be an hour, which no healthy worker passes however busy the machine is.
    """
    check = Supervisor.check
    clock = _Clock()

    def look(supervisor: Supervisor) -> None:
        if supervisor.worker.pid == trap.stopped and is_stopped(trap.stopped):
            clock.offset_s += LIMIT_S
            clock.is_fast = True
        try:
            check(supervisor)
        finally:
            clock.is_fast = False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Supervisor, "check", look)
        patch.setattr("rookery.worker.watch.time", clock)
        yield


class _Clock:
    """The module ``time``, as those see it whose clock is set forward."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self.is_fast = False

    def perf_counter(self) -> float:
        return time.perf_counter() + self.offset_s * self.is_fast
