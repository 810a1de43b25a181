"""Image encoders in torch: the convolutional networks of DQN and IMPALA, for any image size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import torch
from torch import Tensor, nn

from rookery.errors import SpaceError
from rookery.policy.torch.layers import HIDDEN_GAIN, orthogonal

ImageShape: TypeAlias = "tuple[int, int, int]"

# Smaller arrays are treated as tables of numbers. A MiniGrid view has 7 x 7 cells of 3 numbers.
MIN_IMAGE_SIDE = 5
MIN_PLAIN_SIDE = 16  # without an axis of channels
MAX_IMAGE_CHANNELS = 32
MAX_STACKED_CHANNELS = 4

# (kernel, stride, channels) of the three convolutions in Mnih et al. (2015), and output features.
NATURE_CONVOLUTIONS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
NATURE_FEATURES = 512
# The paper's unpadded convolutions need at least this side. Smaller images get padded ones.
MIN_NATURE_SIDE = 36
SMALL_CONVOLUTIONS = ((3, 2, 32), (3, 2, 64), (3, 1, 64))

IMPALA_CHANNELS = (16, 32, 32)
IMPALA_FEATURES = 256


class ImageEncoder(nn.Module, ABC):
    """Base class of convolutional encoders, which converts images to float32 ``[N, C, H, W]``.

    uint8 images are divided by 255, float images are not scaled. Supported layouts are ``[H, W]``,
    ``[H, W, C]``, ``[C, H, W]``, and for stacks of S frames ``[S, H, W, C]`` and ``[S, C, H, W]``,
    which become S * C channels.

    Args:
        space: space of one image.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3, 4):
            raise SpaceError(f"a convolutional network needs images, not {space}")
        self.image_shape = image_shape(space.shape)
        self._shape = space.shape

    def forward(self, image: Tensor) -> Tensor:
        """Encode images ``[N, *shape]``: float32 ``[N, F]``."""
        x = channels_first(image, self._shape)
        # With channels last in memory, convolutions take two thirds of the time on a CPU. For 256
        # Atari images, reordering uint8 and then converting to float takes 2.7 ms instead of 5.8.
        if not x.is_contiguous(memory_format=torch.channels_last):
            x = torch.stack(x.unbind(1), dim=-1).movedim(-1, 1)
        x = x.to(torch.float32)
        # In place: a second float array would take 7 % of a gradient step.
        return self._convolve(x.div_(255.0) if image.dtype == torch.uint8 else x)

    @abstractmethod
    def _convolve(self, x: Tensor) -> Tensor:
        """Convert float32 ``[N, C, H, W]`` to features."""


class NatureCNN(ImageEncoder):
    """The network of Mnih et al. (2015): three convolutions and a linear layer.

    Images with a side under 36 pixels are read by padded 3 x 3 convolutions, which work for any
    size.

    Args:
        space: space of one image.
        num_features: number of features.
        generator: generator of the initial weights.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        num_features: int = NATURE_FEATURES,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(space)
        channels, height, width = self.image_shape
        is_small = min(height, width) < MIN_NATURE_SIDE
        layers: list[nn.Module] = []
        for kernel, stride, filters in SMALL_CONVOLUTIONS if is_small else NATURE_CONVOLUTIONS:
            layers += [_convolution(channels, filters, kernel, stride, int(is_small), generator)]
            layers += [nn.ReLU()]
            channels = filters
            margin = kernel - 2 * is_small
            height, width = ((side - margin) // stride + 1 for side in (height, width))
        self.convolutions = nn.Sequential(*layers)
        self.linear = _linear(channels * height * width, num_features, generator)

    def _convolve(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(self.convolutions(x).flatten(1)))


class ImpalaCNN(ImageEncoder):
    """The large network of Espeholt et al. (2018), figure 3: 15 convolutions with residuals.

    Args:
        space: space of one image.
        channels: number of channels of each section; each section halves the sides.
        num_features: number of features.
        generator: generator of the initial weights.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        channels: Sequence[int] = IMPALA_CHANNELS,
        num_features: int = IMPALA_FEATURES,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(space)
        inputs, height, width = self.image_shape
        sections: list[nn.Module] = []
        for outputs in channels:
            sections += [_convolution(inputs, outputs, 3, 1, 1, generator)]
            sections += [nn.MaxPool2d(3, stride=2, padding=1)]
            sections += [_Residual(outputs, generator), _Residual(outputs, generator)]
            inputs, height, width = outputs, (height + 1) // 2, (width + 1) // 2
        self.sections = nn.Sequential(*sections, nn.ReLU())
        self.linear = _linear(inputs * height * width, num_features, generator)

    def _convolve(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(self.sections(x).flatten(1)))


class _Residual(nn.Module):
    def __init__(self, channels: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.first = _convolution(channels, channels, 3, 1, 1, generator)
        self.second = _convolution(channels, channels, 3, 1, 1, generator)

    def forward(self, x: Tensor) -> Tensor:
        change: Tensor = self.second(torch.relu(self.first(torch.relu(x))))
        return x + change


# Encoders by the names in settings.
IMAGE_ENCODERS: dict[str, type[NatureCNN | ImpalaCNN]] = {"nature": NatureCNN, "impala": ImpalaCNN}


def is_image(space: spaces.Space[Any]) -> bool:
    """Return True if the built-in encoder reads a space by convolutions."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3, 4):
        return False
    if space.dtype != np.uint8 and not np.issubdtype(space.dtype, np.floating):
        return False
    channels, *sides = image_shape(space.shape)
    frames = space.shape[0] if len(space.shape) == 4 else 1
    limit = MAX_STACKED_CHANNELS if frames > 1 else MAX_IMAGE_CHANNELS
    smallest = MIN_PLAIN_SIDE if len(space.shape) == 2 else MIN_IMAGE_SIDE
    return channels <= limit * frames and min(sides) >= smallest


def image_shape(shape: tuple[int, ...]) -> ImageShape:
    """Return the shape of an image as ``(C, H, W)``; C is the smaller of first and last axis."""
    if len(shape) == 2:
        return (1, shape[0], shape[1])
    *frames, first, second, third = shape
    channels, *sides = (first, second, third) if first < third else (third, first, second)
    return (int(np.prod(frames, dtype=np.int64)) * channels, sides[0], sides[1])


def channels_first(image: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a view of images ``[N, *shape]`` as ``[N, C, H, W]``; see `image_shape`."""
    if len(shape) == 2:
        return image[:, None]
    if not shape[-3] < shape[-1]:
        image = image.movedim(-1, -3)
    return image.flatten(1, 2) if len(shape) == 4 else image


def _convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int,
    padding: int,
    generator: torch.Generator | None,
) -> nn.Conv2d:
    layer: nn.Conv2d = _empty(nn.Conv2d, inputs, outputs, kernel, stride=stride, padding=padding)
    _initialize(layer, generator)
    return layer


def _linear(inputs: int, outputs: int, generator: torch.Generator | None) -> nn.Linear:
    layer: nn.Linear = _empty(nn.Linear, inputs, outputs)
    _initialize(layer, generator)
    return layer


def _empty(kind: type[nn.Module], *args: Any, **kwargs: Any) -> Any:
    """Make a layer without torch's initialization, which advances the global generator."""
    return nn.utils.skip_init(kind, *args, **kwargs)  # type: ignore[no-untyped-call]


def _initialize(layer: nn.Conv2d | nn.Linear, generator: torch.Generator | None) -> None:
    with torch.no_grad():
        orthogonal(layer.weight, HIDDEN_GAIN, generator)
        if layer.bias is not None:
            layer.bias.zero_()
