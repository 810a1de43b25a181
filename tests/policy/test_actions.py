"""Conversion of actions of every kind to rows of numbers and back."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from rookery import SpaceError
from rookery.policy.actions import action_layout

FLAT = {
    "discrete": spaces.Discrete(3, start=4),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "multi_discrete_2d": spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "multi_binary": spaces.MultiBinary((2, 2)),
    "box": spaces.Box(-1, 1, (2, 1)),
    "number": spaces.Box(-1, 1, ()),
    "box_float64": spaces.Box(-1, 1, (3,), np.float64),
}
NESTED = {
    "dict": spaces.Dict(a=spaces.Discrete(3, start=1), b=spaces.Box(-2, 2, (2,))),
    "empty_part": spaces.Dict(a=spaces.Discrete(3), none=spaces.Box(-2, 2, (0,))),
    "tuple": spaces.Tuple(
        [spaces.Dict(x=spaces.MultiBinary(2)), spaces.MultiDiscrete([2, 4], start=[0, 5])]
    ),
}


def _same(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return all(_same(*pair) for pair in zip(one, other, strict=True))
    assert one.dtype == other.dtype and one.shape == other.shape
    return (one == other).all()


@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("space", [*FLAT.values(), *NESTED.values()], ids=[*FLAT, *NESTED])
def test_actions_become_rows_and_come_back(space, squashed):
    layout = action_layout(space, squashed=squashed)
    action = batch_space(space, 7).sample()
    rows = layout.encode(action)
    assert rows.shape == (7, layout.num_columns)
    assert rows.dtype == layout.dtype
    back = layout.decode(rows)
    if space.dtype == np.float64:  # rows hold half the digits
        np.testing.assert_allclose(back, action, rtol=1e-6)
    else:
        assert _same(back, action)


def test_leaves_have_adjacent_columns():
    layout = action_layout(NESTED["dict"])
    assert (layout.num_outputs, layout.num_columns, layout.num_choices) == (5, 3, 3)
    assert layout.num_deviations == 2
    action = {"a": np.array([1, 3]), "b": np.array([[0.5, -1], [2, 0]], np.float32)}
    np.testing.assert_array_equal(layout.encode(action), [[0, 0.5, -1], [2, 2, 0]])
    layout = action_layout(NESTED["tuple"])
    assert (layout.num_outputs, layout.num_columns, layout.num_choices) == (8, 4, 10)
    action = {"x": np.array([[1, 0]], np.int8)}, np.array([[1, 8]])
    np.testing.assert_array_equal(layout.encode(action), [[1, 0, 1, 3]])


@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("space", [*FLAT.values(), *NESTED.values()], ids=[*FLAT, *NESTED])
def test_converted_actions_are_in_the_space(space, squashed):
    layout = action_layout(space, squashed=squashed)
    rng = np.random.default_rng(0)
    rows = layout.encode(batch_space(space, 20).sample())
    for part in layout.parts:
        if not part.sizes:
            drawn = rng.normal(scale=9, size=rows[:, part.columns].shape)
            rows[:, part.columns] = np.tanh(drawn) if squashed else drawn
    fitting = layout.to_env(layout.decode(rows))
    for action in iterate(batch_space(space, 20), fitting):
        assert space.contains(np.asarray(action) if space.shape == () else action)


def test_squashed_actions_reach_exactly_to_the_bounds():
    space = spaces.Box(np.array([-0.1, 3.0], np.float32), np.array([0.7, 5.0], np.float32))
    layout = action_layout(space, squashed=True)
    ends = layout.to_env(np.array([[-1, -1], [1, 1], [0, 0]], np.float32))
    np.testing.assert_allclose(ends, [space.low, space.high, [0.3, 4.0]], rtol=1e-6)
    assert (ends[0] == space.low).all() and (ends[1] == space.high).all()


@pytest.mark.parametrize(
    ("space", "place"),
    [
        (spaces.Text(3), "action_space, a Text"),
        (spaces.Dict(a=spaces.Tuple([spaces.Text(2)])), r"action_space\['a'\]\[0\], a Text"),
        (spaces.Box(0, 9, (2,), np.int64), "a Box of int64"),
    ],
)
def test_an_unsupported_space_is_named_with_its_path(space, place):
    with pytest.raises(SpaceError, match=place):
        action_layout(space)


def test_squashing_needs_finite_bounds():
    space = spaces.Dict(a=spaces.Box(0, np.inf, (1,)))
    assert action_layout(space).num_outputs == 1
    with pytest.raises(SpaceError, match=r"finite bounds; action_space\['a'\]"):
        action_layout(space, squashed=True)


@pytest.mark.parametrize("space", [spaces.Tuple([]), spaces.Box(-1, 1, (0,))], ids=str)
def test_an_empty_space_is_refused(space):
    with pytest.raises(SpaceError, match="no components"):
        action_layout(space)
