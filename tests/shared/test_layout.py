"""Layouts: offsets of columns in a block."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rookery.shared import Layout
from rookery.shared.block import CACHE_LINE_BYTES, ColumnSizes

columns = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.tuples(
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
        st.sampled_from([np.dtype(c) for c in "?bBhHiIlLefdFD"]),
    ),
    max_size=8,
)


@given(columns)
def test_columns_are_aligned_disjoint_and_inside_the_block(columns: ColumnSizes) -> None:
    layout = Layout(columns)
    end = 0
    for name, (shape, dtype) in columns.items():
        assert layout.offsets[name] % CACHE_LINE_BYTES == 0
        assert layout.offsets[name] >= end
        end = layout.offsets[name] + math.prod(shape) * dtype.itemsize
    assert layout.size_bytes >= max(end, 1)


@given(columns)
def test_views_have_their_column_and_share_nothing(columns: ColumnSizes) -> None:
    layout = Layout(columns)
    views = layout.views(bytearray(layout.size_bytes))
    for number, view in enumerate(views.values()):
        view[...] = number % 2
    for number, (name, (shape, dtype)) in enumerate(columns.items()):
        assert views[name].shape == shape and views[name].dtype == dtype
        assert (views[name] == number % 2).all()


def test_offsets_of_a_known_layout() -> None:
    layout = Layout(
        {
            "a": ((3,), np.dtype(np.float64)),
            "empty": ((0, 7), np.dtype(np.int8)),
            "b": ((65,), np.dtype(np.uint8)),
            "c": ((), np.dtype(np.int32)),
        }
    )
    assert layout.offsets == {"a": 0, "empty": 64, "b": 64, "c": 192}
    assert layout.size_bytes == 256
