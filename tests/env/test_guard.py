"""What is wrong with what an env gave is said in words, and what Gymnasium takes is taken."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rookery
from rookery.env.deferred import Workshop
from rookery.env.guard import env_problem, reset_problem, reward_as_float, step_problem
from rookery.env.recipe import make_recipes
from rookery.vector.serial import SerialVectorEnv


class Good(gym.Env[Any, Any]):
    observation_space: Any = spaces.Discrete(3)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 1.0, False, False, {}


class Bare(gym.Env[Any, Any]):
    action_space = spaces.Discrete(2)


class ListSpace(Good):
    observation_space = [3]


class ClassSpace(Good):
    action_space = spaces.Discrete


class NoMetadata(Good):
    metadata = None  # type: ignore[assignment]


class Raises(Good):
    @property
    def observation_space(self) -> Any:  # type: ignore[override]
        raise ZeroDivisionError("no space today")


class RaisesInside(Good):
    @property
    def action_space(self) -> Any:  # type: ignore[override]
        return self.table.shape  # type: ignore[attr-defined]


class Exits(Good):
    @property
    def render_mode(self) -> Any:  # type: ignore[override]
        raise SystemExit(3)


class SpecRaises(Good):
    @property
    def spec(self) -> Any:  # type: ignore[override]
        raise ZeroDivisionError("no spec")


class Uninitialised(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        self.wrapped = env


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __bool__(self) -> bool:
        raise RuntimeError("neither")

    def __float__(self) -> float:
        raise RuntimeError("no number")


def test_a_good_env_and_what_it_gives_have_no_problem() -> None:
    env = Good()
    assert env_problem(env) is None
    assert env_problem(gym.make("CartPole-v1")) is None
    assert env_problem(gym.wrappers.TimeLimit(env, 3)) is None
    assert reset_problem(env.reset()) is None
    assert step_problem(env.step(0)) is None
    assert step_problem([np.zeros(3), np.float32(1), np.bool_(True), 0, {"a": 1}]) is None


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (None, "None came; a factory must return"),
        ("env", "a str came, not a gymnasium.Env"),
        (Good, "the class Good itself came"),
        (lambda: Good(), "a function came"),
        (Unprintable(), "an Unprintable came"),
        (Bare(), "a Bare has no observation_space; set self.observation_space"),
        (ListSpace(), r"observation_space of a ListSpace must be .*Space, but is a list: \[3\]"),
        (ClassSpace(), "action_space of a ClassSpace must be .* call it"),
        (NoMetadata(), "metadata of a NoMetadata must be a dict, but is None"),
        (
            Raises(),
            "reading observation_space of a Raises raised ZeroDivisionError .*py, line .*: no",
        ),
        (RaisesInside(), "action_space of a RaisesInside raised AttributeError.*'table'"),
        (Exits(), "reading render_mode of an Exits raised SystemExit .*: 3"),
        (gym.wrappers.TimeLimit(Bare(), 3), "a Bare has no observation_space"),
        (SpecRaises(), "reading spec of a SpecRaises raised ZeroDivisionError"),
        (Uninitialised(Good()), "observation_space of an Uninitialised raised .*attribute"),
    ],
)
def test_what_is_no_env_is_described(env: Any, words: str) -> None:
    problem = env_problem(env)
    assert problem is not None
    with pytest.raises(TypeError, match=words):
        raise TypeError(problem)


def test_a_vector_env_is_no_env() -> None:
    with SerialVectorEnv([Good]) as venv:
        problem = env_problem(venv)
        assert problem is not None and "a vector env came" in problem


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "returned None"),
        (0, "returned an int: 0. An observation alone is what gym before 0.26"),
        (np.zeros(2), r"an array of shape \(2,\) and dtype float64"),
        ((0,), "returned 1 value: "),
        ((0, {}, 1), "returned 3 values"),
        ("ab", "returned a str: 'ab'"),
        ({"obs": 0, "info": {}}, "returned a dict"),
        ((0, [1]), r"a dict as info, but returned a list: \[1\]"),
        ((0, None), "a dict as info, but returned None"),
        (Unprintable(), "an Unprintable: <a Unprintable whose __repr__ fails>"),
        ([0] * 100_000, "returned 100000 values.*characters cut"),
    ],
)
def test_what_a_reset_cannot_return_is_described(result: Any, words: str) -> None:
    problem = reset_problem(result)
    assert problem is not None and problem.startswith("reset must return") and len(problem) < 1000
    with pytest.raises(TypeError, match=words):
        raise TypeError(problem)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "returned None"),
        ((0, 1.0, False, {}), "4 values.*what gym before 0.26 returned"),
        ((0, 1.0, False, False, {}, 3), "6 values"),
        (np.zeros(5), "an array"),
        ("abcde", "a str: 'abcde'"),
        ((0, "x", False, False, {}), "a str as reward, which is no single number: 'x'"),
        ((0, (1.0,), False, False, {}), "a tuple as reward"),
        ((0, np.ones(2), False, False, {}), r"an array of shape \(2,\) .* as reward"),
        ((0, Unprintable(), False, False, {}), "an Unprintable as reward"),
        ((0, 1.0, np.zeros(2), False, {}), r"an array of shape \(2,\) .* as terminated"),
        ((0, 1.0, False, Unprintable(), {}), "an Unprintable as truncated"),
        ((0, 1.0, False, False, None), "a dict as info, but returned None"),
        ((0, 1.0, False, {}, False), "a dict as info, but returned a bool: False"),
    ],
)
def test_what_a_step_cannot_return_is_described(result: Any, words: str) -> None:
    problem = step_problem(result)
    assert problem is not None and problem.startswith("step ")
    with pytest.raises(TypeError, match=words):
        raise TypeError(problem)


class Pays(Good):
    def __init__(self, reward: Any) -> None:
        self.reward = reward

    def step(self, action: Any) -> Any:
        return 0, self.reward, False, False, {}


@pytest.mark.parametrize(
    "reward",
    [
        None,
        "1",
        "x",
        b"2",
        True,
        3,
        10**400,
        1j,
        np.float16(0.1),
        np.bool_(True),
        np.array(2.5),
        np.array([2.5]),
        np.ones((1, 1)),
        (1,),
        [],
        {},
        object(),
        float("inf"),
    ],
    ids=lambda reward: f"{type(reward).__name__}-{str(reward)[:5]}",
)
def test_a_reward_is_what_gymnasium_makes_of_it(reward: Any) -> None:
    venv = gym.vector.SyncVectorEnv([lambda: Pays(reward)])
    venv.reset()
    try:
        expected = venv.step(np.array([0]))[1][0]
    except (TypeError, ValueError, OverflowError, DeprecationWarning):
        with pytest.raises(TypeError, match="as reward, which is no single number"):
            reward_as_float(reward)
    else:
        np.testing.assert_equal(reward_as_float(reward), float(expected))
    finally:
        venv.close()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (Bare, "has no observation_space"),
        (Raises, "raised ZeroDivisionError"),
        (Exits, "raised SystemExit"),
        (lambda: Good, "the class Good itself"),
    ],
)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_an_env_that_cannot_be_one_is_described_by_every_backend(
    source: Callable[[], Any], words: str, backend: str
) -> None:
    with pytest.raises(rookery.EnvFailed, match=f"Env 0 .* raised TypeError in make.*{words}") as e:
        rookery.make_vec(source, 2, backend=backend)
    assert isinstance(e.value, TypeError) and e.value.command == "make"


class Returns(Good):
    """Its first reset, or each step, returns something else."""

    observation_space = spaces.Box(-9, 9, (2,), np.float32)

    def __init__(self, command: str, result: Any) -> None:
        self._results = {"reset": (np.zeros(2, np.float32), {})}
        self._results["step"] = (np.zeros(2, np.float32), 1.0, False, False, {})
        self._results[command] = result

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._results["reset"]

    def step(self, action: Any) -> Any:
        return self._results["step"]


@pytest.mark.parametrize(
    ("command", "result", "words"),
    [
        # An observation of two values can be unpacked as if it were (observation, info).
        ("reset", np.zeros(2, np.float32), r"an array of shape \(2,\) .*before 0.26"),
        ("reset", (np.zeros(2, np.float32), None), "a dict as info, but returned None"),
        ("reset", (np.zeros(2, np.float32),), "returned 1 value"),
        ("reset", (np.zeros(2, np.float32), []), r"a dict as info, but returned a list: \[\]"),
        ("step", np.zeros(5), r"an array of shape \(5,\)"),
        ("step", (np.zeros(2, np.float32), 1.0, False, {}), "4 values.*before 0.26"),
        ("step", (np.zeros(2, np.float32), 1.0, False, False, None), "info, but returned None"),
    ],
)
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_what_an_env_must_not_return_is_described_by_every_backend(
    command: str, result: Any, words: str, backend: str
) -> None:
    kwargs = {"command": command, "result": result}
    with rookery.make_vec(Returns, 2, backend=backend, env_kwargs=kwargs) as venv:
        with pytest.raises(rookery.EnvFailed, match=f"Env 0 .* in {command} .*{words}") as e:
            venv.reset()
            venv.step(np.zeros(2, int))
        assert isinstance(e.value, TypeError) and isinstance(e.value.__cause__, TypeError)
        assert e.value.command == command


@pytest.mark.parametrize(
    "info",
    [OrderedDict(), defaultdict(int), MappingProxyType({}), MappingProxyType({"a": 1})],
    ids=["OrderedDict", "defaultdict", "empty proxy", "proxy"],
)
@pytest.mark.parametrize("command", ["reset", "step"])
def test_an_info_may_be_any_mapping_though_it_is_empty(info: Any, command: str) -> None:
    obs = np.zeros(2, np.float32)
    result = (obs, info) if command == "reset" else (obs, 1.0, False, False, info)
    with SerialVectorEnv([lambda: Returns(command, result)]) as venv:
        infos = {"reset": venv.reset()[1], "step": venv.step(np.zeros(1, int))[4]}
    assert {key: values.tolist() for key, values in infos[command].items()} == (
        {"a": [1], "_a": [True]} if info else {}
    )


def test_what_wrappers_make_is_checked() -> None:
    (recipe,) = make_recipes("CartPole-v1", 1, None, (lambda env: 5,))
    with pytest.raises(TypeError, match="an int came"):
        recipe.build(Workshop())
