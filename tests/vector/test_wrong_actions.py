"""Actions and observations that do not fit raise what code written for Gymnasium catches."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery.testing import Fault, Faulty


class Idle(gym.Env[Any, Any]):
    observation_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}


CASES = [
    (spaces.Discrete(3), 3),
    (spaces.Discrete(3), None),
    (spaces.Discrete(3), [1]),
    (spaces.Discrete(3), [1, 2, 0]),
    (spaces.Discrete(3), []),
    (spaces.Box(0, 1, (2,)), 0.5),
    (spaces.Box(0, 1, (2,)), np.zeros((1, 2))),
    (spaces.Box(0, 1, (2,)), np.zeros((3, 2))),
    (spaces.Text(3), "ab" * 3),
    (spaces.Text(3), ("ab",)),
    (spaces.Dict(a=spaces.Discrete(3)), {"a": 1}),
    (spaces.Dict(a=spaces.Discrete(3)), {"a": [1]}),
    (spaces.Tuple([spaces.Discrete(3)]), (2,)),
]


@pytest.mark.parametrize(("space", "actions"), CASES)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_too_many_too_few_and_single_actions_raise_what_gymnasium_raises(
    space: Any, actions: Any, backend: str
) -> None:
    peer = gym.vector.SyncVectorEnv([lambda: Idle(space)] * 2)
    peer.reset()
    with pytest.raises((TypeError, ValueError)) as expected:
        peer.step(actions)
    with rookery.make_vec(Idle, 2, backend, env_kwargs={"space": space}, num_workers=1) as venv:
        venv.reset()
        with pytest.raises(rookery.SpaceError, match="action") as error:
            venv.step(actions)
        if not isinstance(actions, str):  # to Gymnasium, a string is a sequence of letters
            assert isinstance(error.value, expected.type)
        assert isinstance(error.value, RuntimeError)
        venv.step(venv.action_space.sample())


@pytest.mark.parametrize("actions", [[[1], [1, 2]], ["a", "b"], [None, None], [{}, 1]])
def test_actions_that_are_no_array_are_a_space_error(actions: Any) -> None:
    with rookery.make_vec(Idle, 2, "serial", env_kwargs={"space": spaces.Discrete(3)}) as venv:
        venv.reset()
        with pytest.raises(rookery.SpaceError, match="action"):
            venv.step(actions)


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        (np.zeros(3, int), rookery.SpaceValueError),
        (3, rookery.SpaceTypeError),
        ([Fault.WRONG_SHAPE, 0], rookery.SpaceValueError),
        ([Fault.WRONG_DTYPE, 0], rookery.SpaceTypeError),
    ],
)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_does_not_fit_is_caught_by_its_kind(
    action: Any, kind: type[Exception], backend: str
) -> None:
    with rookery.make_vec(Faulty, 2, backend, num_workers=1) as venv:
        venv.reset()
        with pytest.raises(kind) as error:
            venv.step(action)
        assert isinstance(error.value, rookery.EnvFailed) == isinstance(action, list)
