"""Run a vector env and keep all it returned; compare two such runs to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from conformance_envs import (
    IS_GYMNASIUM_1_3,
    DictEnv,
    FreeEnv,
    ImageEnv,
    MultiDiscreteEnv,
    TupleActionEnv,
)
from gymnasium.vector import AutoresetMode

SOURCES: dict[str, Any] = {
    "CartPole": "CartPole-v1",
    "Taxi": "Taxi-v4",
    "Dict": DictEnv,
    "Free": FreeEnv,
    "Image": ImageEnv,
    "MultiDiscrete": MultiDiscreteEnv,
    "TupleAction": TupleActionEnv,
}
if IS_GYMNASIUM_1_3:  # its Text draws from a set, whose order each process has for itself
    del SOURCES["Free"]

NUM_ENVS = 5
SEED = 11


def env_fn(name: str) -> Callable[[], gym.Env[Any, Any]]:
    source = SOURCES[name]
    return (lambda: gym.make(source)) if isinstance(source, str) else source


def run(venv: gym.vector.VectorEnv[Any, Any, Any], num_steps: int) -> list[Any]:
    """Reset with a seed, then step with actions that depend on nothing but the space."""
    venv.action_space.seed(SEED)
    results: list[Any] = [kept(venv.reset(seed=SEED, options={"difficulty": 3}))]
    for _ in range(num_steps):
        result = kept(venv.step(venv.action_space.sample()))
        results.append(result)
        if venv.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
            ended = result[2] | result[3]
            if ended.any():
                results.append(kept(venv.reset(options={"reset_mask": ended})))
    return results


def kept(value: Any) -> Any:
    """A copy that later steps cannot change."""
    return copy.deepcopy(value)


def assert_same(actual: Any, expected: Any, path: str = "result") -> None:
    """Equal types, keys in the same order, dtypes, shapes and values, all the way down."""
    assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
    if isinstance(expected, dict):
        assert list(actual) == list(expected), path
        for key in expected:
            assert_same(actual[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert len(actual) == len(expected), path
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray) and expected.dtype == object:
        assert actual.shape == expected.shape, path
        for i, (a, e) in enumerate(zip(actual.flat, expected.flat, strict=True)):
            assert_same(a, e, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape, path
        assert np.array_equal(actual, expected, equal_nan=expected.dtype.kind == "f"), path
    else:
        assert actual == expected, path
