"""Observations of every kind as vectors and images."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from rookery import SpaceError
from rookery.policy.encoder import ObservationEncoder


def test_a_flat_float_observation_is_passed_through():
    obs = np.arange(6, dtype=np.float32).reshape(2, 3)
    features = ObservationEncoder(spaces.Box(-1, 1, (3,))).encode(obs)
    assert features.vector is obs
    assert features.images == ()


def test_discrete_observations_are_one_hot_from_their_start():
    encoder = ObservationEncoder(spaces.Discrete(3, start=5))
    np.testing.assert_array_equal(encoder.encode(np.array([5, 7])).vector, [[1, 0, 0], [0, 0, 1]])


def test_multi_discrete_observations_are_one_hot_per_component():
    encoder = ObservationEncoder(spaces.MultiDiscrete([2, 3], start=[0, 1]))
    np.testing.assert_array_equal(
        encoder.encode(np.array([[1, 3], [0, 1]])).vector, [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]
    )


def test_nested_leaves_lie_side_by_side_numbers_first():
    space = spaces.Dict(
        a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-9, 9, (2, 1))])
    )
    obs = {
        "a": np.array([1]),
        "b": (np.array([[1, 0]], np.int8), np.array([[[3.0], [4.0]]], np.float32)),
    }
    encoder = ObservationEncoder(space)
    np.testing.assert_array_equal(encoder.encode(obs).vector, [[3, 4, 0, 1, 1, 0]])
    assert (encoder.size, encoder.num_scaled) == (6, 2)


@pytest.mark.parametrize(
    ("shape", "channels_first"),
    [((84, 84, 4), (4, 84, 84)), ((4, 84, 84), (4, 84, 84)), ((60, 40), (1, 60, 40))],
)
def test_images_are_brought_to_channels_first(shape: tuple, channels_first: tuple):
    space = spaces.Box(0, 255, shape, np.uint8)
    encoder = ObservationEncoder(space)
    obs = batch_space(space, 2).sample()
    (image,) = encoder.encode(obs).images
    assert encoder.image_shapes == (channels_first,)
    assert image.shape == (2, *channels_first)
    assert encoder.size == 0


def test_small_byte_arrays_are_numbers_between_zero_and_one():
    encoder = ObservationEncoder(spaces.Box(0, 255, (2, 2), np.uint8))
    obs = np.array([[[0, 255], [51, 0]]], np.uint8)
    np.testing.assert_allclose(encoder.encode(obs).vector, [[0, 1, 0.2, 0]])


def test_an_unreadable_space_is_named_with_its_path():
    space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Text(5)]))
    with pytest.raises(SpaceError, match=r"observation_space\['a'\]\[1\], a Text"):
        ObservationEncoder(space)
