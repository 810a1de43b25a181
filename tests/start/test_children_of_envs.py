"""Envs may start processes with multiprocessing, and none outlives its worker."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
import psutil
import pytest
from patience import PATIENCE_S

import rookery
from rookery.testing import Faulty


class Pooled(Faulty):
    """Computes its reward in a process pool, which it may not close."""

    def __init__(self, closes: bool, manages: bool = False) -> None:
        super().__init__()
        self.closes = closes
        self.pool = multiprocessing.Pool(2)
        self.manager = multiprocessing.Manager() if manages else None
        self.idle = multiprocessing.Process(target=time.sleep, args=(600,), daemon=False)
        self.idle.start()

    def step(self, action: Any) -> Any:
        obs, _, terminated, truncated, info = super().step(action)
        return obs, float(sum(self.pool.map(abs, [-3, 4]))), terminated, truncated, info

    @property
    def children(self) -> list[int]:
        return [child.pid for child in multiprocessing.active_children() if child.pid]

    def close(self) -> None:
        if self.closes:
            self.pool.terminate()
            self.pool.join()
            self.idle.kill()
            self.idle.join()
        super().close()


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_a_pool_in_an_env_works_and_ends_with_the_worker(method: str, closes: bool) -> None:
    kwargs = {"closes": closes, "manages": not closes}
    with rookery.make_vec(
        Pooled, 2, backend="process", num_workers=2, start_method=method, env_kwargs=kwargs
    ) as venv:
        venv.reset()
        assert venv.step(np.zeros(2, int))[1].tolist() == [7.0, 7.0]
        pids = [pid for children in venv.get_attr("children") for pid in children]
        assert len(pids) >= 6
        processes = [psutil.Process(pid) for pid in pids]
    assert not psutil.wait_procs(processes, timeout=PATIENCE_S)[1]


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_processes_of_an_env_start_as_those_of_the_caller(method: str) -> None:
    def note(env: Any) -> Any:
        env.unwrapped.start_method = multiprocessing.get_start_method(allow_none=True)
        return env

    with rookery.make_vec(
        Faulty, 1, backend="process", start_method=method, wrappers=[note]
    ) as venv:
        expected = multiprocessing.get_start_method(allow_none=True)
        assert venv.get_attr("start_method") == (expected,)
