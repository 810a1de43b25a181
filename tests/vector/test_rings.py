"""Events that were set without a waiter wake no later wait, and never accumulate."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from gated_envs import Gated, make
from patience import PATIENCE_S

import rookery
from rookery.worker.wait import event as event_module
from rookery.worker.wait.event import ProcessEvent

NUM_FREE = 6  # envs; two more are witnesses by turns
ROUNDS = 20


class Witness(Gated):
    """A step with action k leaves a file ``begun-k`` and lasts until there is one ``open-k``."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action:
            (self._folder / f"begun-{action}").touch()
            while not (self._folder / f"open-{action}").exists():
                time.sleep(0.001)
        return super().step(0)


def _make(folder: Path) -> rookery.VectorEnv:
    venv = make("process", Witness, NUM_FREE + 2, num_workers=1, kwargs={"folder": str(folder)})
    venv.reset(seed=1)
    return venv


def _receive_only_what_is_ready(venv: rookery.VectorEnv, folder: Path) -> None:
    """Receive many answers without ever waiting; the last witness is left in its step.

    The envs of a worker are stepped in the order in which they were sent actions, so all others
    have answered once a witness has begun.
    """
    worker = psutil.Process(venv.pids[0])
    for k in range(1, ROUNDS + 1):
        actions = np.zeros(NUM_FREE + 1, int)
        actions[-1] = k
        venv.send(actions, [*range(NUM_FREE), NUM_FREE + k % 2])
        (folder / f"open-{k - 1}").touch()
        while not (folder / f"begun-{k}").exists():
            assert worker.is_running(), "the worker has ended"
            time.sleep(0.001)
        num_ready = NUM_FREE + (k > 1)
        assert len(venv.recv(min_envs=num_ready, timeout=PATIENCE_S)[5]) == num_ready


def test_a_wait_hears_no_rings_of_answers_that_were_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _make(tmp_path) as venv:
        _receive_only_what_is_ready(venv, tmp_path)
        heard, wait = [], ProcessEvent.wait

        def counted(event: ProcessEvent, *args: Any, **kwargs: Any) -> bool:
            heard.append(wait(event, *args, **kwargs))
            return heard[-1]

        monkeypatch.setattr(ProcessEvent, "wait", counted)
        with pytest.raises(rookery.WorkerTimeout):
            venv.recv(timeout=0.05)
        assert not any(heard)
        (tmp_path / f"open-{ROUNDS}").touch()
        assert len(venv.recv(timeout=PATIENCE_S)[5]) == 1


class SmallSemaphore(event_module._multiprocessing.SemLock):
    """Counts only to a small number; on macOS, to 32767."""

    SEM_VALUE_MAX = 50

    def __new__(cls, kind: int, value: int, limit: int, *args: Any) -> Any:
        return super().__new__(cls, kind, value, min(limit, cls.SEM_VALUE_MAX), *args)


def test_a_semaphore_that_holds_few_rings_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = {**vars(event_module._multiprocessing), "SemLock": SmallSemaphore}
    monkeypatch.setattr(event_module, "_multiprocessing", SimpleNamespace(**functions))
    assert ROUNDS * NUM_FREE > SmallSemaphore.SEM_VALUE_MAX
    with _make(tmp_path) as venv:
        _receive_only_what_is_ready(venv, tmp_path)
        (tmp_path / f"open-{ROUNDS}").touch()
        assert len(venv.recv(timeout=PATIENCE_S)[5]) == 1
