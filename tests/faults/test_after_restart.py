"""After a restart nothing of the lost worker is told, and no ending is told twice."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from patience import PATIENCE_S

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty

TELL, DIE, END = 1, 2, 3


class Telling(gym.Env[Any, Any]):
    """Tells an info when its action says so; dies, or ends its episode, for other actions.

    Args:
        folder: with a file ``die`` in it, the next reset removes that and dies.
    """

    observation_space = gym.spaces.Box(-1, 9999, (1,), np.int64)
    action_space = gym.spaces.Discrete(4)

    def __init__(self, folder: str = "/nowhere") -> None:
        self._deadly = Path(folder) / "die"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self._deadly.exists():
            self._deadly.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        self._count = 0
        return np.array([0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1
        info = {"told": "x" * 10, "number": 3.5} if action == TELL else {}
        return np.array([self._count]), 1.0, bool(action == END), False, info


def _make(env: Any = Telling, num_envs: int = 2, **options: Any) -> rookery.VectorEnv:
    options = {"num_workers": 1, "faults": FaultPolicy("restart"), **options}
    return rookery.make_vec(env, num_envs, backend="process", **options)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("steps_between", [0, 1, 2])
def test_infos_of_the_lost_worker_are_not_told_again(steps_between: int, mode: str) -> None:
    with _make(num_envs=3, num_workers=2, autoreset_mode=mode) as venv:
        venv.reset(seed=1)
        idle, tell, first_tells = np.zeros(3, int), np.full(3, TELL), np.array([TELL, 0, 0])
        for _ in range(2):  # into every buffer
            venv.step(tell)
        for _ in range(steps_between):
            venv.step(idle)
        _, _, _, truncated, info = venv.step(np.array([0, DIE, 0]))
        assert truncated.tolist() == info["_fault"].tolist() == [False, True, True]
        assert "told" not in info
        for _ in range(4):  # infos are read again where an env of another worker tells one
            assert venv.step(first_tells)[4]["_told"].tolist() == [True, False, False]
        assert venv.step(tell)[4]["number"].tolist() == [3.5, 3.5, 3.5]


def test_an_episode_that_has_ended_does_not_end_again_when_its_reset_is_lost(
    tmp_path: Path,
) -> None:
    with _make(env_kwargs={"folder": str(tmp_path)}) as venv:
        venv.reset(seed=1)
        _, _, terminated, truncated, _ = venv.step(np.array([END, END]))
        assert terminated.all() and not truncated.any()
        (tmp_path / "die").touch()
        obs, reward, terminated, truncated, info = venv.step(np.zeros(2, int))
        assert not (tmp_path / "die").exists()
        assert not terminated.any() and not truncated.any() and not info
        assert obs[:, 0].tolist() == [0, 0] and reward.tolist() == [0.0, 0.0]
        assert venv.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 1]


@pytest.mark.parametrize("fault", [Fault.KILL, Fault.RAISE])
def test_one_fault_of_a_partial_batch_costs_one_restart(fault: Fault) -> None:
    policy = FaultPolicy("restart", max_restarts=1, window_s=10_000)
    with _make(Faulty, faults=policy) as venv:
        venv.send_reset(seed=1)
        venv.recv(min_envs=2, timeout=PATIENCE_S)
        venv.send(np.array([fault]), [0])
        assert venv.recv(timeout=PATIENCE_S)[3].tolist() == [True]
        pids = venv.pids
        _, _, _, truncated, info = venv.step(np.zeros(2, int))
        assert truncated.tolist() == [False, True]  # env 0 was told before, and is reset now
        assert info["_fault"].tolist() == [False, True]
        assert not venv.step(np.zeros(2, int))[3].any()
        assert venv.pids == pids


def test_the_envs_that_lost_no_worker_keep_the_seeds_of_a_reset() -> None:
    with _make(Faulty, 3) as venv:
        venv.reset(seed=1)
        options: Any = [None, {"fault": Fault.KILL}, None]
        with pytest.raises(rookery.WorkerDied):
            venv.reset(seed=10, options=options)
    with _make(Telling, 3) as venv:
        venv.reset(seed=1)
        os.kill(venv.pids[0], signal.SIGKILL)
        venv.reset(seed=10)
        assert venv.get_attr("np_random_seed") == (10, 11, 12)


class Dicing(gym.Env[Any, Any]):
    """Observes what the global streams of its process draw; a step with action 1 dies."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._obs(), 0.0, False, False, {}

    def _obs(self) -> Any:
        return np.array([np.random.random(), random.random()])  # noqa: NPY002


def _dice(method: str, seed: int | None) -> list[float]:
    """What two vector envs of two workers draw, before and after a restart of all workers."""
    drawn: list[float] = []
    for _ in range(2 if seed is None else 1):
        with _make(Dicing, 2, num_workers=2, start_method=method) as venv:
            drawn += venv.reset(seed=seed)[0].ravel().tolist()
            drawn += venv.step(np.zeros(2, int))[0].ravel().tolist()
            venv.step(np.ones(2, int))
            drawn += venv.step(np.zeros(2, int))[0].ravel().tolist()
            drawn += venv.step(np.zeros(2, int))[0].ravel().tolist()
    return drawn


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_global_streams_differ_by_worker_vector_env_and_restart(method: str) -> None:
    drawn = _dice(method, None)
    assert len(drawn) == 32 and len(set(drawn)) == 32


@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_global_streams_follow_a_seed_even_after_a_restart(method: str) -> None:
    drawn = _dice(method, 5)
    assert len(set(drawn)) == 16
    assert _dice(method, 5) == drawn
    assert not set(_dice(method, 6)) & set(drawn)


@pytest.mark.parametrize("copies", [True, False])
def test_attributes_are_set_again_as_they_were_set(copies: bool) -> None:
    with _make(num_envs=4, num_workers=2) as venv:
        settings = [{"rate": 1} for _ in range(4)] if copies else [{"rate": 1}] * 4
        venv.set_attr("settings", settings)
        venv.reset(seed=1)
        for each in settings:
            each["rate"] = 2
        venv.step([0, DIE, 0, 0])
        venv.step([0, 0, 0, 0])
        assert venv.restarts == 1
        assert venv.get_attr("settings") == ({"rate": 1},) * 4
