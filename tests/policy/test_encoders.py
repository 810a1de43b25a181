"""Encoders in torch: every kind of observation to features."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import nn

from rookery import ConfigError, SpaceError
from rookery.policy.numpy.mlp import Features
from rookery.policy.torch.encoders import FeatureEncoder, OneHot, to_tensors
from rookery.policy.torch.images import ImpalaCNN, NatureCNN, channels_first, image_shape, is_image

BYTES = spaces.Box(0, 255, (48, 40, 3), np.uint8)


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _observations(space, size=4):
    batched = batch_space(space, size)
    batched.seed(0)
    return batched.sample()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (3,)),
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.Box(-1, 1, ()),
        spaces.Dict(a=spaces.Box(0, 255, (), np.uint8), b=spaces.Box(-1, 1, (2,))),
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([2, 3], start=[0, 1]),
        spaces.MultiDiscrete([[2, 3], [4, 2]]),
        spaces.MultiDiscrete([200, 3, 100], dtype=np.uint8),
        spaces.MultiBinary((2, 2)),
        spaces.Dict(
            a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-9, 9, (2, 1))])
        ),
    ],
    ids=str,
)
def test_features_without_images_are_those_that_numpy_actors_read(space):
    obs = _observations(space)
    encoder = FeatureEncoder(space)
    features = encoder(to_tensors(obs))
    expected = Features(space)(obs)
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    assert features.dtype == torch.float32
    assert encoder.num_features == expected.shape[1]
    assert not list(encoder.parameters())


def test_choices_are_one_hot():
    found = OneHot(spaces.MultiDiscrete([2, 3], start=[0, 1]))(torch.tensor([[1, 3], [0, 1]]))
    assert found.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0]]


# -- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected", "channels"),
    [
        ((60, 40), (1, 60, 40), lambda x: [x]),
        ((84, 84, 4), (4, 84, 84), lambda x: [x[..., c] for c in range(4)]),
        ((4, 84, 84), (4, 84, 84), list),
        ((7, 7, 3), (3, 7, 7), lambda x: [x[..., c] for c in range(3)]),
        ((4, 6, 8, 3), (12, 6, 8), lambda x: [x[s, ..., c] for s in range(4) for c in range(3)]),
        ((4, 3, 6, 8), (12, 6, 8), lambda x: [x[s, c] for s in range(4) for c in range(3)]),
    ],
)
def test_images_of_every_layout_are_brought_to_channels_first(shape, expected, channels):
    image = np.arange(np.prod(shape)).reshape(shape)
    found = channels_first(torch.from_numpy(image[None]), shape)[0]
    assert image_shape(shape) == found.shape == expected
    for channel, picture in zip(found, channels(image), strict=True):
        np.testing.assert_array_equal(channel, picture)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), True),
        (spaces.Box(0, 1, (28, 28, 1)), True),
        (spaces.Box(0, 1, (64, 64), np.float64), True),
        (spaces.Box(0, 255, (4, 84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (10, 4), np.uint8), False),
        (spaces.Box(-1, 1, (2, 3, 4)), False),
        (spaces.Box(-1, 1, (64, 64, 64)), False),
        (spaces.Box(0, 9, (84, 84, 3), np.int64), False),
        (spaces.Box(-1, 1, (84,)), False),
        (spaces.Discrete(2), False),
    ],
    ids=str,
)
def test_is_image_depends_on_shape_and_dtype(space, expected):
    assert is_image(space) is expected


@pytest.mark.parametrize("network", [NatureCNN, ImpalaCNN])
@pytest.mark.parametrize(
    "shape", [(84, 84, 4), (36, 36, 1), (35, 36, 1), (5, 5, 3), (7, 9, 3), (4, 24, 20, 3), (20, 16)]
)
def test_images_of_any_size_are_read(network, shape):
    space = spaces.Box(0, 255, shape, np.uint8)
    encoder = network(space, num_features=16, generator=_generator())
    features = encoder(torch.from_numpy(_observations(space)))
    assert features.shape == (4, 16)
    assert (features.std(0) > 0).any()
    features.sum().backward()
    assert all(p.grad.isfinite().all() and (p.grad != 0).any() for p in encoder.parameters())


def test_nature_is_the_network_of_the_paper():
    encoder = NatureCNN(spaces.Box(0, 255, (84, 84, 4), np.uint8), generator=_generator())
    shapes = [tuple(p.shape) for p in encoder.parameters() if p.dim() > 1]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 7 * 7 * 64)]
    image = torch.from_numpy(_observations(spaces.Box(0, 255, (84, 84, 4), np.uint8)))
    x = image.permute(0, 3, 1, 2).float() / 255
    first, second, third = (encoder.convolutions[k] for k in (0, 2, 4))
    x = torch.relu(nn.functional.conv2d(x, first.weight, first.bias, stride=4))
    x = torch.relu(nn.functional.conv2d(x, second.weight, second.bias, stride=2))
    x = torch.relu(nn.functional.conv2d(x, third.weight, third.bias))
    expected = torch.relu(x.reshape(4, -1) @ encoder.linear.weight.T + encoder.linear.bias)
    torch.testing.assert_close(encoder(image), expected, atol=1e-5, rtol=1e-4)


def test_impala_is_the_large_network_of_the_paper():
    encoder = ImpalaCNN(spaces.Box(0, 255, (32, 48, 3), np.uint8), generator=_generator())
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 15
    assert [m.out_channels for m in convolutions] == [16] * 5 + [32] * 10
    assert encoder.linear.weight.shape == (256, 4 * 6 * 32)


@pytest.mark.parametrize("network", [NatureCNN, ImpalaCNN])
def test_bytes_are_scaled_and_floats_are_not(network):
    shape = (40, 40, 3)
    as_bytes = network(spaces.Box(0, 255, shape, np.uint8), generator=_generator())
    as_floats = network(spaces.Box(0, 1, shape), generator=_generator())
    image = torch.from_numpy(_observations(spaces.Box(0, 255, shape, np.uint8)))
    torch.testing.assert_close(as_bytes(image), as_floats(image.float() / 255))
    # positively homogeneous: without biases, rectified layers scale with what they read
    torch.testing.assert_close(
        as_floats(image.float()), 255 * as_bytes(image), rtol=1e-3, atol=0.05
    )


@pytest.mark.parametrize("network", [NatureCNN, ImpalaCNN])
def test_initial_weights_follow_the_generator_alone(network):
    before = torch.random.get_rng_state()
    one, same, other = (network(BYTES, generator=_generator(s)) for s in (1, 1, 2))
    assert (torch.random.get_rng_state() == before).all()
    assert all((a == b).all() for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert (one.linear.weight != other.linear.weight).any()
    assert all(not p.any() for p in one.parameters() if p.dim() == 1)


def test_only_images_are_read_as_images():
    with pytest.raises(SpaceError, match="needs images, not Discrete"):
        NatureCNN(spaces.Discrete(3))


# -- several parts --------------------------------------------------------------------------------


def test_every_part_has_its_encoder():
    space = spaces.Dict(
        eye=BYTES,
        ear=spaces.Box(-1, 1, (3,)),
        rest=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (20, 20))]),
    )
    encoder = FeatureEncoder(space, generator=_generator())
    obs = to_tensors(_observations(space))
    features = encoder(obs)
    assert features.shape == (4, 3 + 2 + 512 + 512) == (4, encoder.num_features)
    torch.testing.assert_close(features[:, :3], obs["ear"])
    torch.testing.assert_close(features[:, 3], (obs["rest"][0] == 0).float())
    torch.testing.assert_close(features[:, 5:517], encoder.parts[2](obs["eye"]))
    torch.testing.assert_close(features[:, 517:], encoder.parts[3](obs["rest"][1]))


class _Letters(nn.Module):
    """Counts letters of texts."""

    def __init__(self, space):
        super().__init__()
        self.characters = space.characters
        self.linear = nn.Linear(len(self.characters), 4)

    def forward(self, texts):
        counts = [[float(text.count(c)) for c in self.characters] for text in texts]
        return self.linear(torch.tensor(counts))


def test_a_custom_encoder_may_read_a_part():
    space = spaces.Dict(
        rules=spaces.Tuple([spaces.Text(6, charset="abc")]), x=spaces.Box(-1, 1, (2,))
    )
    encoder = FeatureEncoder(space, {"rules.0": _Letters})
    obs = {"rules": (("aab", "", "c"),), "x": np.zeros((3, 2), np.float32)}
    features = encoder(to_tensors(obs))
    assert features.shape == (3, 6)
    letters = encoder.parts[1]
    expected = letters(("aab", "", "c"))
    torch.testing.assert_close(features[:, 2:], expected)


def test_a_custom_encoder_may_read_a_branch():
    space = spaces.Dict(a=spaces.Dict(b=spaces.Discrete(2), c=spaces.Text(3)), d=spaces.Discrete(3))

    class Branch(nn.Module):
        def forward(self, obs):
            return obs["b"][:, None].float()

    encoder = FeatureEncoder(space, {"a": lambda space: Branch()})
    assert encoder.num_features == 4


def test_a_part_without_encoder_raises_with_advice():
    space = spaces.Dict(a=spaces.Tuple([spaces.Discrete(2), spaces.Text(5)]))
    message = r"observation_space\['a'\]\[1\], a Text.*encoder=\{'a.1': ...\}"
    with pytest.raises(SpaceError, match=message):
        FeatureEncoder(space)


def test_an_encoder_for_a_missing_part_raises():
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"encoder names 'c', but the parts of .* are a, b"):
        FeatureEncoder(space, {"c": _Letters})


def test_an_encoder_without_features_raises():
    space = spaces.Dict(a=spaces.Box(-1, 1, (2, 3)))
    with pytest.raises(ConfigError, match=r"features \[N, F\]; .* it returned .*\[2, 2, 3\]"):
        FeatureEncoder(space, {"a": lambda space: nn.Identity()})


def test_arrays_that_torch_does_not_take_become_tensors():
    flipped = np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::-1]
    constant = np.ones((2, 2), np.uint16)
    constant.flags.writeable = False
    found = to_tensors({"a": flipped, "b": (constant, ("x", "y"))})
    assert found["a"].tolist() == [[2, 1, 0], [5, 4, 3]]
    assert found["b"][0].dtype == torch.int64
    assert found["b"][1] == ("x", "y")


def test_arrays_are_not_copied():
    array = np.zeros((2, 3), np.float32)
    tensor = to_tensors(array)
    array[0, 0] = 7.0
    assert tensor[0, 0] == 7.0
