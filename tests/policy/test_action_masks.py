"""Masks as envs give them, and as distributions read them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rookery.errors import SpaceValueError
from rookery.policy.action_masks import encode_mask
from rookery.policy.actions import action_layout
from rookery.policy.distributions import distribution


def _array(*rows):
    return np.array(rows, np.int8)


def test_masks_of_every_kind_become_rows():
    discrete = action_layout(spaces.Discrete(3))
    np.testing.assert_array_equal(encode_mask(discrete, _array([1, 0, 1])), [[True, False, True]])
    multi = action_layout(spaces.MultiDiscrete([2, 3]))
    expected = [[True, False, False, True, True]]
    parts = _array([1, 0]), _array([0, 1, 1])
    np.testing.assert_array_equal(encode_mask(multi, parts), expected)
    np.testing.assert_array_equal(encode_mask(multi, np.concatenate(parts, axis=1)), expected)
    binary = action_layout(spaces.MultiBinary(3))
    expected = [[True, False, False, True, True, True]]
    np.testing.assert_array_equal(encode_mask(binary, _array([0, 1, 2])), expected)


def test_masks_of_nested_spaces_leave_numbers_out():
    space = spaces.Dict(
        a=spaces.Box(-1, 1, (2,)),
        b=spaces.Tuple([spaces.Discrete(2), spaces.MultiDiscrete([[2, 2]])]),
    )
    nested = (((_array([1, 1]), _array([0, 1]))),)
    mask = {"a": None, "b": (_array([0, 1]), nested)}
    found = encode_mask(action_layout(space), mask)
    np.testing.assert_array_equal(found, [[False, True, True, True, False, True]])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(3),
        spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
    ],
    ids=str,
)
def test_what_gymnasium_samples_under_a_mask_is_legal_and_likewise(space):
    """Every draw of either side is possible for the other one."""
    one = {
        "Discrete": _array(0, 1, 1, 0),
        "MultiDiscrete": (_array(0, 1), _array(1, 0, 1)),
        "MultiBinary": _array(0, 1, 2),
        "Tuple": (_array(1, 0, 1), _array(2, 1)),
    }[type(space).__name__]
    batch = tuple(m[None] for m in one) if isinstance(one, tuple) else one[None]
    layout = action_layout(space)
    mask = torch.from_numpy(encode_mask(layout, batch)).expand(200, -1)
    drawn = distribution(layout, torch.zeros(200, layout.num_outputs), mask=mask)
    rows = layout.encode(layout.decode(drawn.sample(torch.Generator().manual_seed(0)).numpy()))
    space.seed(0)
    samples = [space.sample(mask=one) for _ in range(200)]
    if isinstance(space, spaces.Tuple):
        theirs = layout.encode(tuple(map(np.stack, zip(*samples, strict=True))))
    else:
        theirs = layout.encode(np.stack(samples))
    assert {tuple(row) for row in rows.tolist()} == {tuple(row) for row in theirs.tolist()}


def test_a_mask_of_another_shape_is_named():
    layout = action_layout(spaces.Tuple([spaces.Discrete(3)]))
    with pytest.raises(SpaceValueError, match=r"action_space\[0\] must have 3 columns.*not 2"):
        encode_mask(layout, (_array([1, 0]),))
    with pytest.raises(SpaceValueError, match="must hold 0, 1 or 2"):
        encode_mask(action_layout(spaces.MultiBinary(2)), _array([1, 3]))
    with pytest.raises(SpaceValueError, match="no choices to mask"):
        encode_mask(action_layout(spaces.Box(-1, 1, (2,))), _array([1, 1]))
