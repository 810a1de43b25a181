"""check_vector_env passes what is right and catches what is wrong, and says where."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import wrong_vector_envs
from gymnasium.vector import SyncVectorEnv

import rookery
from rookery.testing import CheckFailed, Scripted, check_vector_env

RIGHT: dict[str, Any] = {
    "SyncVectorEnv": wrong_vector_envs.Right,
    "serial": rookery.SerialVectorEnv,
    "process": partial(rookery.ProcessVectorEnv, num_workers=2),
    "caller-steps": partial(rookery.ProcessVectorEnv, num_workers=1, caller_steps=True),
}
WRONG = [
    kind
    for kind in vars(wrong_vector_envs).values()
    if isinstance(kind, type)
    and kind.__module__ == wrong_vector_envs.__name__
    and kind is not wrong_vector_envs.Right
]


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_ones_pass(name: str) -> None:
    check_vector_env(RIGHT[name], num_operations=60)


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_every_wrong_one_is_caught(kind: Any) -> None:
    with pytest.raises(CheckFailed, match=getattr(kind, "shows", None)) as caught:
        check_vector_env(kind, num_operations=60)
    assert caught.value.history and caught.value.operation in str(caught.value)


def test_views_of_one_buffer_pass_if_they_need_not_outlive_a_step() -> None:
    check_vector_env(SyncVectorEnv, copies=[False], views_outlive=0, num_operations=40)
    with pytest.raises(CheckFailed, match="changed later, by step"):
        check_vector_env(SyncVectorEnv, copies=[False], num_operations=40)


def test_a_failure_names_operation_env_place_and_what_led_there() -> None:
    with pytest.raises(CheckFailed) as caught:
        check_vector_env(wrong_vector_envs.SwappedRows, num_operations=60)
    error = caught.value
    assert error.operation.startswith("step(") and error.env in (0, 1)
    assert error.path == f"reward[{error.env}]"
    assert error.expected != error.came
    assert error.history[0].startswith("make(") and error.history[1].startswith("reset(seed=")
    assert "expected: " in str(error) and "came: " in str(error)


def test_the_same_seed_fails_in_the_same_place() -> None:
    histories = []
    for _ in range(2):
        with pytest.raises(CheckFailed) as caught:
            check_vector_env(wrong_vector_envs.StaleInfo, seed=5, num_operations=60)
        histories.append(caught.value.history)
    assert histories[0] == histories[1]


def test_envs_calls_and_attributes_of_ones_own() -> None:
    make: Any = partial(gym.make, "CartPole-v1", render_mode="rgb_array")
    check_vector_env(
        rookery.SerialVectorEnv,
        [make] * 2,
        calls=[("np_random_seed",)],
        attributes={"gravity": [9.8, 1.6]},
        num_operations=30,
    )


def test_vector_wrappers_are_held_to_the_same_model() -> None:
    class Doubled(gym.vector.VectorWrapper):
        def step(self, actions: Any) -> Any:
            obs, reward, *rest = super().step(actions)
            return (obs, 2 * reward, *rest)

    def wrapped(kind: Any, env_fns: Any, **options: Any) -> Any:
        return kind(rookery.SerialVectorEnv(env_fns, **options))

    env_fns = [partial(Scripted, 0.2, False, 5)] * 2
    check_vector_env(partial(wrapped, gym.vector.VectorWrapper), env_fns, num_operations=20)
    with pytest.raises(CheckFailed, match="reward"):
        check_vector_env(partial(wrapped, Doubled), env_fns, num_operations=20)


@pytest.mark.parametrize(
    ("expected", "came"),
    [
        (0.0, -0.0),
        (1, True),
        (np.float32(1), np.float64(1)),
        (np.zeros(2), np.zeros(3)),
        ({"a": 1}, {"a": 1, "_a": 1}),
        ((1, 2), [1, 2]),
        (np.array([None, "a"], object), np.array([None, "b"], object)),
        (np.random.default_rng(0), np.random.default_rng(1)),
    ],
)
def test_the_smallest_difference_is_one(expected: Any, came: Any) -> None:
    from rookery.testing.difference import find_difference

    assert find_difference(expected, came, "x") is not None
    assert find_difference(expected, expected, "x") is None


def test_nan_equals_itself() -> None:
    from rookery.testing.difference import find_difference

    values = [np.nan, np.float32(np.nan), np.array([1, np.nan]), {"a": (np.nan,)}]
    for value in values:
        assert find_difference(value, value, "x") is None
    assert find_difference(np.array([0.0]), np.array([-0.0]), "x") is not None
