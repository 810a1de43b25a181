"""A worker that is stopped between any two instructions of its loop loses no order."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from patience import PATIENCE_S

import rookery

GATE, MOST = 1000, 80  # an action; instructions between an answer and the wait that follows it


class Stops(gym.Env[Any, Any]):
    """Has its worker stop where its last action says.

    Action ``k`` stops it before the k-th instruction of its loop after the step; ``GATE + k`` is a
    step that lasts until ``sent-k`` exists.
    """

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2 * GATE)

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._left = self._place = 0
        # Python 3.12 asks for this when tracing begins, and not when the frame of a loop does.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        if action < GATE:
            self._left = self._place = int(action)
        else:
            while not (self._folder / f"sent-{action - GATE}").exists():
                time.sleep(0.001)
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("loop.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self._left:
            self._left -= 1
            if not self._left:
                (self._folder / f"at-{self._place}").touch()
                time.sleep(0.05)  # the caller goes on meanwhile, or later: either must do
        return self._trace


@pytest.mark.slow
@pytest.mark.parametrize("call", ["get_attr", "step"])
def test_an_event_that_is_set_late_hides_no_request(tmp_path: Path, call: str) -> None:
    """The second set is noticed when both envs have answered; then the caller asks again."""
    kwargs = {"folder": str(tmp_path)}
    with rookery.make_vec(Stops, 2, "process", num_workers=1, env_kwargs=kwargs) as venv:
        venv.reset()
        steps = 0
        for place in range(1, MOST):
            venv.send(np.array([GATE + place]), [0])
            venv.send(np.array([place]), [1])
            (tmp_path / f"sent-{place}").touch()
            received = 0
            while received < 2:
                received += len(venv.recv(timeout=PATIENCE_S)[5])
            while not (tmp_path / f"at-{place}").exists():
                time.sleep(0.001)
            steps += 1
            if call == "step":
                venv.step_async(np.zeros(2, int))
                venv.step_wait(timeout=PATIENCE_S)
                steps += 1
            venv.call_async("count")
            assert venv.call_wait(timeout=PATIENCE_S) == (steps, steps)
