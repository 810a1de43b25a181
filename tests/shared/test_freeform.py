"""Free values are decoded to equal values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces.graph import GraphInstance
from hypothesis import given
from hypothesis import strategies as st

from rookery.shared.freeform import FreeForm

arrays = st.one_of(
    st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int64]).map(
        lambda dtype: spaces.Box(0, 100, (2, 3), dtype)
    ),
    st.builds(spaces.Discrete, st.integers(1, 9)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    st.just(spaces.MultiDiscrete([3, 4])),
    st.just(spaces.Text(8)),
)


def _one_of(inner: Any) -> Any:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(spaces.Dict, st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)),
        several.map(spaces.Tuple),
        several.map(spaces.OneOf),
        inner.map(spaces.Sequence),
    )


graphs = st.builds(
    spaces.Graph,
    st.sampled_from([spaces.Box(-1, 1, (3,)), spaces.Discrete(4)]),
    st.sampled_from([None, spaces.Box(-1, 1, (2,)), spaces.Discrete(5)]),
)
nested = st.recursive(st.one_of(arrays, graphs), _one_of, max_leaves=5)


def _same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            _same(actual[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            _same(a, e)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        np.testing.assert_array_equal(actual, expected)
        assert actual.flags.writeable
    else:
        assert actual == expected


@given(nested, st.integers(0, 2**31))
def test_a_sample_of_any_space_comes_back_equal(space: Any, seed: int) -> None:
    space.seed(seed)
    form = FreeForm(space)
    for _ in range(3):
        sample = space.sample()
        _same(form.decode(memoryview(form.encode(sample))), sample)


@pytest.mark.parametrize(
    ("feature", "is_array"),
    [
        (spaces.Box(0, 1, (2,)), True),
        (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Tuple([spaces.Discrete(2)])}), False),
        (spaces.Discrete(5), True),
    ],
)
def test_stacked_sequences_come_back_stacked(feature: Any, is_array: bool) -> None:
    space = spaces.Sequence(feature, stack=True, seed=3)
    form = FreeForm(space)
    for _ in range(20):
        sample = space.sample()
        encoded = form.encode(sample)
        assert (encoded[:1] != b"P") is is_array
        _same(form.decode(memoryview(encoded)), sample)


def test_arrays_of_sequences_and_graphs_are_not_pickled() -> None:
    graph = spaces.Graph(spaces.Box(-1, 1, (3,)), spaces.Discrete(5))
    sequence = spaces.Sequence(spaces.MultiBinary(3))
    for space, sample in (
        (graph, graph.sample(num_nodes=4, num_edges=2)),
        (graph, graph.sample(num_nodes=1)),
        (sequence, (np.ones(3, np.int8), np.zeros(3, np.int8))),
    ):
        encoded = FreeForm(space).encode(sample)
        assert encoded[:1] in (b"E", b"G")
        _same(FreeForm(space).decode(memoryview(encoded)), sample)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Text(5), 17),
        (spaces.Text(5), "\ud800 alone"),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), ()),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), [np.zeros(2)]),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), (np.zeros(3), "three")),
        (spaces.Sequence(spaces.Discrete(3)), (1, 2)),
        (spaces.Graph(spaces.Discrete(3), None), GraphInstance(np.arange(3), None, None)),
        (spaces.Graph(spaces.Discrete(3), None), None),
        (spaces.Graph(spaces.Discrete(3), None), GraphInstance(["a"], None, None)),
        (spaces.Graph(spaces.Discrete(3), None), (np.zeros(2), np.zeros(3))),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), (np.zeros(2), np.zeros(2, ">f8"))),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), (np.array(3.0), np.array(4.0))),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), (np.array(["text"]),)),
        (spaces.Sequence(spaces.Box(0, 1, (2,))), (np.zeros((0, 2)), np.zeros((0, 2)))),
        (spaces.OneOf([spaces.Discrete(3)]), (0, np.int64(2))),
        (spaces.OneOf([spaces.Discrete(3)]), (np.int64(7), 2)),
        (spaces.Tuple([spaces.Text(2)]), ["ab"]),
    ],
)
def test_values_outside_of_their_space_come_back_too(space: Any, value: Any) -> None:
    form = FreeForm(space)
    decoded = form.decode(memoryview(form.encode(value)))
    assert type(decoded) is type(value)
    assert repr(decoded) == repr(value)


def test_decoded_values_share_no_memory_with_the_bytes() -> None:
    form = FreeForm(spaces.Sequence(spaces.Box(0, 1, (2,))))
    memory = bytearray(form.encode((np.ones(2, np.float32),)))
    decoded = form.decode(memoryview(memory))
    memory[:] = bytes(len(memory))
    assert decoded[0].tolist() == [1.0, 1.0]
