"""Types and values of actions for envs, and of observations for callers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from contract_backends import Open, scripted
from contract_envs import Echo, Fixed
from gymnasium import spaces

import rookery


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Discrete(3), ("int64", ())),
        (spaces.Discrete(3, dtype=np.int32), ("int32", ())),
        (spaces.MultiDiscrete([2, 3]), ("int64", (2,))),
        (spaces.MultiBinary((2, 2)), ("int8", (2, 2))),
        (spaces.Box(-1, 1, (2,), np.float32), ("float32", (2,))),
        (spaces.Box(-1, 1, (), np.float64), ("float64", ())),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(-1, 1, (1,))])),
            {"a": ("int64", ()), "b": (("float32", (1,)),)},
        ),
    ],
    ids=str,
)
def test_an_env_gets_its_row_of_the_actions(open_any: Open, space: Any, kind: Any) -> None:
    venv = open_any([partial(Echo, space)] * 2)
    venv.reset()
    venv.step(venv.action_space.sample())
    assert venv.get_attr("kind") == (kind, kind)


@pytest.mark.parametrize("make", [list, tuple, np.array])
def test_actions_may_be_any_sequence_of_numbers(open_any: Open, make: Any) -> None:
    venv = open_any()
    venv.reset()
    assert venv.step(make([0, 1, 0]))[2].tolist() == [False, True, False]


def test_what_an_env_does_to_its_action_stays_with_it(open_ours: Open) -> None:
    """SyncVectorEnv lets an env write into the caller's array."""
    venv = open_ours([partial(Echo, spaces.Box(-1, 1, (2,), np.float32))] * 2)
    venv.reset()
    actions = np.full((2, 2), 0.5, np.float32)
    venv.step(actions)
    assert (actions == 0.5).all()


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, 0.25], [0.5, 0.25]),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([0.5, 0.25]), [0.5, 0.25]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([True, False]), [1, 0]),
        (spaces.Discrete(4), np.array(3), 3),
        (spaces.Discrete(4), True, 1),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
    ],
    ids=str,
)
def test_observations_become_the_dtype_of_their_space(
    open_any: Open, space: Any, value: Any, expected: Any
) -> None:
    venv = open_any([partial(Fixed, space, value)] * 2)
    for obs in (venv.reset()[0], venv.step(np.zeros(2, int))[0]):
        assert obs.dtype == space.dtype and obs.tolist() == [expected, expected]


def test_a_dict_may_have_more_keys_than_its_space(open_any: Open) -> None:
    venv = open_any([partial(Fixed, spaces.Dict(a=spaces.Discrete(3)), {"a": 1, "b": 2})] * 2)
    obs = venv.reset()[0]
    assert list(obs) == ["a"] and obs["a"].tolist() == [1, 1]


def test_a_tuple_observation_may_come_as_a_list(open_any: Open) -> None:
    venv = open_any([partial(Fixed, spaces.Tuple([spaces.Discrete(3)]), [1])] * 2)
    obs = venv.reset()[0]
    assert type(obs) is tuple and obs[0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.array([1, 2])),
        (spaces.Box(0, 9, (2,), np.int64), np.array([1.5, 2.5])),
        (spaces.Discrete(4), 2.0),
        (spaces.Box(-1, 1, (2,), np.float32), np.zeros((1, 2), np.float32)),
        (spaces.Box(-1, 1, (2,), np.float32), np.float32(0.5)),
        (spaces.Dict(a=spaces.Discrete(3)), {"b": 1}),
    ],
    ids=str,
)
def test_an_observation_that_does_not_fit_is_the_envs_failure(
    open_ours: Open, space: Any, value: Any
) -> None:
    """SyncVectorEnv raises too, a TypeError, ValueError or KeyError; AsyncVectorEnv casts most."""
    venv = open_ours([partial(Fixed, space, value)] * 2)
    with pytest.raises(rookery.SpaceError, match="observation") as caught:
        venv.reset()
    assert isinstance(caught.value, rookery.EnvFailed) and caught.value.env_ids == (0,)


@pytest.mark.parametrize(
    "options",
    [
        {"shared_memory": True, "context": "spawn", "daemon": True},
        {"shared_memory": True, "context": "forkserver", "daemon": False},
    ],
    ids=str,
)
def test_arguments_of_async_vector_env_are_understood(options: dict[str, Any]) -> None:
    with rookery.ProcessVectorEnv(
        scripted(), copy=True, observation_mode="same", autoreset_mode="SameStep", **options
    ) as venv:
        assert venv.reset()[0][:, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("seed", [np.int64(3), np.int32(3)])
def test_our_seed_may_be_a_numpy_integer(open_ours: Open, seed: Any) -> None:
    """Gymnasium takes it for a list, and fails."""
    venv = open_ours()
    venv.reset(seed=seed)
    assert venv.get_attr("seeds") == ([3], [4], [5])
