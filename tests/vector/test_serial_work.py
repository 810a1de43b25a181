"""Values without a fixed shape cost the envs of the calling thread less than over Gymnasium."""

from __future__ import annotations

import copy
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import rookery

NUM_ENVS, NUM_STEPS = 8, 10


class Made(gym.Env[Any, Any]):
    """Returns observations that it has sampled before."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = copy.deepcopy(space)
        self.observation_space.seed(0)
        self._obs, self._count = [self.observation_space.sample() for _ in range(8)], 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._obs[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        return self._obs[self._count % 8], 0.0, False, False, {}


def _calls_of_a_step(venv: Any) -> float:
    """The number of function calls per step of one env, which is the same on every machine."""
    count, actions = 0, np.zeros(NUM_ENVS, int)

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    venv.reset(seed=0)
    for _ in range(3):
        venv.step(actions)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(NUM_STEPS):
            venv.step(actions)
    finally:
        sys.setprofile(before)
        venv.close()
    return count / NUM_ENVS / NUM_STEPS


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Box(0, 1, (3,))),
        spaces.Graph(spaces.Box(0, 1, (4,)), spaces.Discrete(3)),
        spaces.Text(8),
    ],
    ids=["Sequence", "Graph", "Text"],
)
def test_a_step_calls_fewer_functions_than_over_gymnasium(space: Any) -> None:
    ours = _calls_of_a_step(rookery.make_vec(lambda: Made(space), NUM_ENVS, "serial"))
    theirs = _calls_of_a_step(SyncVectorEnv([lambda: Made(space)] * NUM_ENVS))
    assert ours < theirs, (ours, theirs)
