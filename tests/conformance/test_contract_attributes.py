"""call, get_attr, set_attr and render, on wrappers and the envs in them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from contract_backends import Open, cues, scripted
from contract_envs import Labelled, Scripted

import rookery

REPORTS = pytest.mark.filterwarnings(r"ignore:.*ERROR.*:UserWarning")


def _labelled() -> Any:
    return Labelled(Scripted(render_mode="rgb_array"))


def test_call_passes_arguments_and_returns_a_tuple(open_any: Open) -> None:
    venv = open_any()
    assert venv.call("add", 1) == (1, 1, 1)
    assert venv.call("add", 1, b=2) == (3, 3, 3)
    assert venv.call("add", a=1, b=2) == (3, 3, 3)


def test_call_of_what_is_no_function_returns_it(open_any: Open) -> None:
    venv = open_any()
    assert venv.call("label") == venv.get_attr("label") == ("inner",) * 3


def test_attributes_differ_from_env_to_env(open_any: Open) -> None:
    venv = open_any()
    venv.reset(seed=5)
    assert venv.get_attr("seeds") == ([5], [6], [7])


@pytest.mark.parametrize(
    ("name", "value"),
    [("label", "outer"), ("outer_only", 1), ("steps", 0), ("render_mode", "rgb_array")],
)
def test_the_outermost_that_has_an_attribute_answers(open_any: Open, name: str, value: Any) -> None:
    venv = open_any([_labelled] * 2)
    assert venv.get_attr(name) == (value, value)


def test_methods_of_wrappers_and_of_envs_in_them_can_be_called(open_any: Open) -> None:
    venv = open_any([_labelled] * 2)
    assert venv.call("whisper") == ("outer", "outer")
    assert venv.call("add", 2) == (2, 2)


@REPORTS
def test_an_attribute_that_nobody_has_is_an_attribute_error(open_any: Open) -> None:
    venv = open_any([_labelled] * 2)
    with pytest.raises(AttributeError, match="nothing_such"):
        venv.get_attr("nothing_such")


@pytest.mark.parametrize("values", [[1, 2, 3], (1, 2, 3)])
def test_a_list_or_tuple_holds_a_value_for_each_env(open_any: Open, values: Any) -> None:
    venv = open_any()
    venv.set_attr("label", values)
    assert venv.get_attr("label") == (1, 2, 3)


@pytest.mark.parametrize("value", [7, "abc", None, {"a": 1}])
def test_any_other_value_is_given_to_all(open_any: Open, value: Any) -> None:
    venv = open_any()
    venv.set_attr("label", value)
    assert venv.get_attr("label") == (value,) * 3


def test_an_array_is_one_value(open_any: Open) -> None:
    venv = open_any()
    venv.set_attr("label", np.arange(3))
    assert [label.tolist() for label in venv.get_attr("label")] == [[0, 1, 2]] * 3


@pytest.mark.parametrize("values", [[], [1, 2], (1, 2, 3, 4)])
def test_a_wrong_number_of_values_is_a_value_error(open_any: Open, values: Any) -> None:
    venv = open_any()
    with pytest.raises(ValueError, match="values"):
        venv.set_attr("label", values)
    assert venv.get_attr("label") == ("inner",) * 3


def test_an_attribute_is_set_where_it_is(open_any: Open) -> None:
    venv = open_any([_labelled] * 2)
    venv.set_attr("steps", 5)
    venv.set_attr("label", "changed")
    assert venv.get_attr("steps") == (5, 5)
    assert venv.get_attr("label") == ("changed",) * 2


def test_what_was_set_changes_the_steps(open_any: Open) -> None:
    venv = open_any()
    venv.reset()
    venv.set_attr("steps", [10, 20, 30])
    assert venv.step(cues(0, 0, 0))[1].tolist() == [11, 21, 31]


def test_a_physical_constant_of_a_wrapped_env_can_be_changed(open_any: Open) -> None:
    venv = open_any([lambda: gym.make("CartPole-v1")] * 3)
    venv.set_attr("gravity", [9.8, 1.6, 3.7])
    assert venv.get_attr("gravity") == (9.8, 1.6, 3.7)


def test_frames_come_from_every_env(open_any: Open) -> None:
    venv = open_any(scripted(render_mode="rgb_array"))
    venv.reset()
    venv.step(cues(0, 0, 0))
    frames = venv.render()
    assert isinstance(frames, tuple) and len(frames) == 3
    for frame in frames:
        assert frame.dtype == np.uint8 and frame.shape == (4, 6, 3) and (frame == 1).all()


def test_a_list_of_frames_is_given_back_by_the_wrapper_that_keeps_it(open_any: Open) -> None:
    venv = open_any([lambda: gym.wrappers.RenderCollection(Scripted(render_mode="rgb_array"))] * 2)
    assert venv.render_mode == "rgb_array_list"
    venv.reset()
    venv.step(np.zeros(2, int))
    assert [len(frames) for frames in venv.render()] == [2, 2]
    assert [len(frames) for frames in venv.render()] == [0, 0]


def test_it_can_be_used_in_a_with_block() -> None:
    with rookery.SerialVectorEnv(scripted()) as venv:
        venv.reset()
    assert venv.closed
