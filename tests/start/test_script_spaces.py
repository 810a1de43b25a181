"""Spaces and values that a script defines are pickled both ways, with every start method."""

from __future__ import annotations

import pytest
from programs import output_of

SCRIPT = """
import gymnasium as gym
import rookery
from gymnasium import spaces

class Move:
    def __init__(self, name):
        self.name = name

class MoveSpace(spaces.Space):
    def sample(self, mask=None, probability=None):
        return Move(str(self.np_random.integers(9)))
    def contains(self, x):
        return isinstance(x, Move)
    def __eq__(self, other):
        return isinstance(other, MoveSpace)

class Game(gym.Env):
    observation_space = spaces.Dict(log=spaces.Text(500), last=MoveSpace())
    action_space = MoveSpace()
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.log = ""
        return {"log": "", "last": Move("none")}, {}
    def step(self, action):
        self.log += action.name
        return {"log": self.log, "last": action}, 1.0, False, False, {"who": Move("me")}

with rookery.make_vec(Game, 3, backend="process", num_workers=2, start_method=METHOD) as venv:
    venv.reset(seed=1)
    for letter in "abc":
        obs, _, _, _, info = venv.step(tuple(Move(letter) for _ in range(3)))
    venv.send((Move("d"),), [1])
    assert venv.recv()[0]["log"] == ("abcd",)
assert obs["log"] == ("abc",) * 3, obs
assert all(type(move) is Move and move.name == "c" for move in obs["last"])
assert all(type(move) is Move for move in info["who"])
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_objects_of_a_script_are_pickled_both_ways(method: str) -> None:
    assert output_of(SCRIPT.replace("METHOD", repr(method))) == ""
