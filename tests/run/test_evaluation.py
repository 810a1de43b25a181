"""An evaluation ends, whatever the env and its workers do, and says what it could not do."""

from __future__ import annotations

import os
import signal
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery import FaultPolicy
from rookery.policy.base import PolicyStep
from rookery.run import callbacks, evaluation


class Endless(gym.Env[Any, Any]):
    """Never ends; or dies, after some steps of its process.

    Args:
        ends_after: steps of an episode; 0 means that it never ends.
        dies_after: steps after which its process is killed; 0 means never.
    """

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, ends_after: int = 0, dies_after: int = 0) -> None:
        self._ends_after, self._dies_after, self._steps = ends_after, dies_after, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._count += 1
        if self._steps == self._dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(1, np.float32), 1.0, self._count == self._ends_after, False, {}


class Idle:
    """A policy that always chooses action 0."""

    is_recurrent = False
    memory = None

    def begin_episodes(self, begun: Any) -> None:
        """Nothing is remembered."""

    def act(self, obs: Any, deterministic: bool = False) -> PolicyStep:
        return PolicyStep(np.zeros(len(obs), int), np.zeros(len(obs)), np.zeros(len(obs)))

    def to_env(self, action: Any) -> Any:
        return action


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_episode_that_never_ends_is_cut_and_counted(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MOST_EPISODE_STEPS", 7, raising=False)
    with (
        rookery.make_vec(Endless, 2, backend, autoreset_mode="same_step") as venv,
        pytest.warns(UserWarning, match="3 of 3 episodes had not ended after 7 steps"),
    ):
        score = evaluation.run_episodes(venv, Idle(), 3, 1, max_episode_steps=7)
    assert score.returns.tolist() == [7.0] * 3 and score.lengths.tolist() == [7] * 3
    assert "3 of 3 episodes" in score.note


def test_an_episode_as_long_as_the_limit_is_whole() -> None:
    kwargs = {"ends_after": 7}
    with rookery.make_vec(
        Endless, 2, "serial", env_kwargs=kwargs, autoreset_mode="same_step"
    ) as venv:
        score = evaluation.run_episodes(venv, Idle(), 3, 1, max_episode_steps=7)  # type: ignore[arg-type]
    assert score.returns.tolist() == [7.0] * 3 and not score.note


def test_an_evaluation_in_which_workers_die_again_and_again_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "_MOST_LOST", 2)
    with (
        rookery.make_vec(
            Endless,
            1,
            "process",
            env_kwargs={"ends_after": 5, "dies_after": 3},
            autoreset_mode="same_step",
            faults=FaultPolicy("restart", max_restarts=10_000),
        ) as venv,
        pytest.warns(UserWarning, match="stopped after 0 of 1 episodes"),
    ):
        score = evaluation.run_episodes(venv, Idle(), 1, 1)  # type: ignore[arg-type]
    assert score.returns.shape == (0,) and "worker faults cut off 5 others" in score.note


def test_what_a_fault_cut_off_is_not_counted() -> None:
    with rookery.make_vec(
        Endless,
        1,
        "process",
        env_kwargs={"ends_after": 5, "dies_after": 8},
        autoreset_mode="same_step",
        faults=FaultPolicy("restart", max_restarts=10_000),
    ) as venv:
        score = evaluation.run_episodes(venv, Idle(), 3, 1)  # type: ignore[arg-type]
    assert score.returns.tolist() == [5.0] * 3 and not score.note


def test_the_episode_of_a_video_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_MOST_STEPS", 7)
    env = Endless()
    with pytest.warns(UserWarning, match="not ended after 7 steps"):
        callbacks._play(env, Idle(), 1)
    assert env._count == 7
