"""Spaces as columns: writing rows, batching, and errors that name the path."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st

from rookery import SpaceError
from rookery.shared.freeform import FreeForm
from rookery.shared.spaces import FreeLeaf, Leaf, batched, flattened, leaves, rows, writer

dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int16, np.int64])
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
arrays_like = st.one_of(
    st.builds(lambda shape, dtype: spaces.Box(0, 100, shape, dtype), shapes, dtypes),
    st.builds(
        lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-5, 5)
    ),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=3)),
)
nested = st.recursive(
    arrays_like,
    lambda inner: st.one_of(
        st.builds(spaces.Dict, st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3)),
        st.builds(spaces.Tuple, st.lists(inner, max_size=3)),
    ),
    max_leaves=6,
)


def _columns(space: gym.Space[Any], n: int) -> list[np.ndarray[Any, Any]]:
    return [np.zeros((n, *leaf.shape), leaf.dtype) for leaf in leaves(space, "observation")]


def _assert_equal(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            _assert_equal(actual[key], expected[key])
    elif isinstance(expected, tuple):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            _assert_equal(a, e)
    else:
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


@given(nested, st.integers(0, 2**32 - 1))
def test_written_rows_are_batched_as_gymnasium_batches_them(space: Any, seed: int) -> None:
    space.seed(seed)
    samples = [space.sample() for _ in range(3)]
    columns = _columns(space, 3)
    for i, sample in enumerate(samples):
        writer(space, iter(columns), [], i, "observation")(sample)
    actual = batched(space, iter(columns))
    _assert_equal(actual, concatenate(space, samples, create_empty_array(space, 3)))
    flat = flattened(space, actual, "observation")
    assert len(flat) == len(columns) and all(a is b for a, b in zip(flat, columns, strict=True))


@given(nested)
def test_columns_have_the_shapes_and_dtypes_of_the_batched_space(space: Any) -> None:
    parts = flattened(batch_space(space, 4), batch_space(space, 4).sample(), "space")
    for column, part in zip(_columns(space, 4), parts, strict=True):
        assert column.shape == part.shape and column.dtype == part.dtype


def _write(space: gym.Space[Any], value: Any) -> list[Any]:
    columns = _columns(space, 1)
    writer(space, iter(columns), [], 0, "observation")(value)
    return columns


def test_a_wrong_shape_is_named_with_its_path() -> None:
    space = spaces.Dict({"a": spaces.Tuple([spaces.Box(0, 1, (4,))])})
    with pytest.raises(SpaceError, match=r"observation\['a'\]\[0\] has shape \(1,\).*shape \(4,\)"):
        _write(space, {"a": (np.zeros(1, np.float32),)})


def test_floats_are_not_cut_to_ints() -> None:
    with pytest.raises(SpaceError, match="dtype float64"):
        _write(spaces.MultiDiscrete([3, 3]), np.array([0.5, 1.0]))
    with pytest.raises(SpaceError, match="dtype float64"):
        _write(spaces.Discrete(3), 1.5)


numbers = st.one_of(
    st.booleans(),
    st.integers(-300, 300),
    st.sampled_from([-(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 255, 256, 1.0, 0.5, None]),
    st.floats(width=32),
)
kinds = st.sampled_from(
    [lambda x: x, np.asarray, np.bool_, np.uint8, np.int16, np.int64, np.float32, np.float64]
)
number_spaces = st.builds(
    lambda dtype, shape: spaces.Box(0, 1, shape, dtype),
    st.sampled_from([np.uint8, np.int8, np.uint16, np.int64, np.uint64, np.bool_, np.float32]),
    st.sampled_from([(), (2,), (1, 2)]),
)


def _as_gymnasium_writes(space: Any, value: Any) -> Any:
    """Return the row, or None if Gymnasium refuses or changes the value."""
    with np.errstate(all="ignore"):
        try:
            (row,) = concatenate(space, [value], create_empty_array(space, 1))
        except (TypeError, ValueError):
            return None
        is_same = np.array_equal(row, np.asarray(value), equal_nan=row.dtype.kind == "f")
    return row if is_same else None


# Before Gymnasium 1.3 all have one dtype.
DISCRETE_SPACES = (
    [spaces.Discrete(3, dtype=dtype) for dtype in (np.int8, int)]
    if "dtype" in inspect.signature(spaces.Discrete).parameters
    else [spaces.Discrete(3)]
)


@given(
    st.one_of(
        number_spaces,
        st.just(spaces.MultiBinary(2)),
        st.just(spaces.MultiDiscrete([3, 3])),
        st.sampled_from(DISCRETE_SPACES),
    ),
    st.data(),
)
def test_values_that_gymnasium_stores_exactly_are_stored_and_others_are_space_errors(
    space: Any, data: Any
) -> None:
    value = data.draw(numbers)
    for length in reversed(space.shape):
        value = [value] * data.draw(st.sampled_from([length, length, length, 1]))
    try:
        value = data.draw(kinds)(value)
    except (OverflowError, TypeError, ValueError):
        return  # numpy has no such number
    expected = _as_gymnasium_writes(space, value)
    with np.errstate(all="ignore"):
        try:
            (column,) = _write(space, value)
        except SpaceError:
            assert expected is None
            return
    if expected is not None:
        np.testing.assert_array_equal(column[0], expected)
    elif np.asarray(value).dtype.kind in "iu" and not isinstance(value, (np.ndarray, np.generic)):
        assert column[0].tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int64, np.uint64, np.bool_])
def test_python_ints_fit_every_integer_dtype_within_its_range(dtype: Any) -> None:
    low, high = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = int(low), int(high)
    for value in (low, high):
        assert _write(spaces.Box(0, 1, (), dtype), value)[0][0] == value
        assert _write(spaces.Box(0, 1, (2,), dtype), [value] * 2)[0][0].tolist() == [value] * 2
    for value in (low - 1, high + 1, 2**70):
        for shape, wrong in (((), value), ((2,), [value] * 2)):
            with pytest.raises(SpaceError, match=r"observation\['n'\].*dtype"):
                _write(spaces.Dict(n=spaces.Box(0, 1, shape, dtype)), {"n": wrong})


@pytest.mark.parametrize("value", [None, "text", object(), [1, [2]], {}, np.zeros((2, 1)), 1j])
@pytest.mark.parametrize("shape", [(2,), (), (0, 2)])
def test_a_value_that_is_not_a_number_is_a_space_error_with_its_path(
    shape: Any, value: Any
) -> None:
    with pytest.raises(SpaceError, match=r"observation\[0\]"):
        _write(spaces.Tuple([spaces.Box(0, 1, shape)]), (value,))


def test_a_missing_key_is_named() -> None:
    with pytest.raises(SpaceError, match=r"observation\['b'\] is missing"):
        _write(spaces.Dict({"b": spaces.Discrete(2)}), {"a": 1})


@pytest.mark.parametrize("value", [2, np.int64(2), np.array(2), np.int16(2), True + 1])
def test_discrete_observations_may_be_any_integer(value: Any) -> None:
    (column,) = _write(spaces.Discrete(3), value)
    assert column[0] == 2


def test_a_float64_observation_fits_a_float32_space() -> None:
    (column,) = _write(spaces.Box(0, 1, (2,)), np.array([0.1, 0.2]))
    np.testing.assert_array_equal(column[0], np.array([0.1, 0.2], np.float32))


def test_a_list_observation_is_taken() -> None:
    (column,) = _write(spaces.Box(0, 1, (2,)), [0.25, 0.5])
    np.testing.assert_array_equal(column[0], np.array([0.25, 0.5], np.float32))


def test_a_space_without_array_form_is_a_free_leaf_beside_the_others() -> None:
    space = spaces.Dict({"text": spaces.Text(5), "box": spaces.Box(0, 1, (2,))})
    found = leaves(space, "observation")
    assert [leaf.path for leaf in found] == ["observation['box']", "observation['text']"]
    assert [type(leaf) for leaf in found] == [Leaf, FreeLeaf]
    free: list[bytes] = []
    column = np.zeros((1, 2), np.float32)
    value = {"text": "héllo", "box": np.ones(2, np.float32)}
    encode = FreeForm(spaces.Text(5)).encode
    takes_text = iter([lambda text: free.append(encode(text))])
    writer(space, iter([column]), takes_text, 0, "observation")(value)
    assert column.tolist() == [[1.0, 1.0]]
    assert [FreeForm(spaces.Text(5)).decode(memoryview(part)) for part in free] == ["héllo"]


def test_a_batch_is_taken_apart_as_gymnasium_iterates_over_it() -> None:
    space = spaces.Dict({"a": spaces.Tuple([spaces.Text(3), spaces.Discrete(4)])})
    batch = batch_space(space, 3)
    batch.seed(1)
    value = batch.sample()
    assert list(rows(space, value, 3)) == list(iterate(batch, value))
