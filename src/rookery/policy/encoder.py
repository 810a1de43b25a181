"""Observations of any supported space as what a network reads: one vector, and images.

Box, Discrete, MultiDiscrete and MultiBinary leaves of a (nested) Dict or Tuple are laid side by
side in one float32 vector; uint8 images are kept apart for a convolutional network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import SpaceError
from rookery.rollout.tree import Tree

Path: TypeAlias = "tuple[str | int, ...]"

# The Nature network's three unpadded convolutions leave nothing of an image smaller than this.
MIN_IMAGE_SIDE = 36
MAX_IMAGE_CHANNELS = 32


class Features(NamedTuple):
    """Encoded observations.

    Attributes:
        vector: float32 ``[N, D]``; D may be zero. Possibly a view of the observations.
        images: uint8 ``[N, C, H, W]`` each; views where the env has channels first.
    """

    vector: npt.NDArray[np.float32]
    images: tuple[npt.NDArray[np.uint8], ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: Path
    space: spaces.Space[Any]
    size: int

    def read(self, obs: Tree) -> npt.NDArray[Any]:
        for key in self.path:
            obs = obs[key]
        return np.asarray(obs)


class ObservationEncoder:
    """Encodes batches of one observation space.

    Attributes:
        size: D, the length of the vector.
        num_scaled: the first so many columns are real numbers, and may be normalised; the rest
            are zeros and ones.
        image_shapes: ``(C, H, W)`` of every image.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        leaves = list(_leaves(space, ()))
        self._images = [leaf for leaf in leaves if _is_image(leaf.space)]
        vectors = [leaf for leaf in leaves if not _is_image(leaf.space)]
        # Real numbers first, so that normalisation concerns one contiguous block of columns.
        self._vectors = sorted(vectors, key=lambda leaf: not isinstance(leaf.space, spaces.Box))
        self.size = sum(leaf.size for leaf in self._vectors)
        self.num_scaled = sum(v.size for v in self._vectors if isinstance(v.space, spaces.Box))
        self.image_shapes = tuple(_channels_first(leaf.space.shape) for leaf in self._images)
        self._plain = space.dtype == np.float32 and len(space.shape or ()) == 1 and not self._images

    def encode(self, obs: Tree) -> Features:
        """Encode a batch ``[N, *obs]``."""
        if self._plain:
            return Features(np.asarray(obs, np.float32), ())
        images = tuple(_to_channels_first(leaf.read(obs)) for leaf in self._images)
        columns = [_columns(leaf.space, leaf.read(obs)) for leaf in self._vectors]
        if len(columns) == 1:
            return Features(columns[0], images)
        if columns:
            return Features(np.concatenate(columns, axis=1), images)
        return Features(np.empty((len(images[0]), 0), np.float32), images)


def _leaves(space: spaces.Space[Any], path: Path) -> Iterator[_Leaf]:
    match space:
        case spaces.Dict():
            for key, branch in space.spaces.items():
                yield from _leaves(branch, (*path, key))
        case spaces.Tuple():
            for index, branch in enumerate(space.spaces):
                yield from _leaves(branch, (*path, index))
        case spaces.Box() | spaces.MultiBinary():
            yield _Leaf(path, space, int(np.prod(space.shape)))
        case spaces.Discrete():
            yield _Leaf(path, space, int(space.n))
        case spaces.MultiDiscrete():
            yield _Leaf(path, space, int(np.sum(space.nvec)))
        case _:
            place = "".join(f"[{key!r}]" for key in path)
            raise SpaceError(
                f"no built-in network reads observation_space{place}, a {type(space).__name__}; "
                "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple are supported"
            )


def _is_image(space: spaces.Space[Any]) -> bool:
    if (
        not isinstance(space, spaces.Box)
        or space.dtype != np.uint8
        or len(space.shape) not in (2, 3)
    ):
        return False
    channels, *sides = _channels_first(space.shape)
    return channels <= MAX_IMAGE_CHANNELS and min(sides) >= MIN_IMAGE_SIDE


def _channels_first(shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    """Read ``[H, W]``, ``[H, W, C]`` or ``[C, H, W]`` as ``(C, H, W)``: C is the smaller end."""
    assert shape is not None
    if len(shape) == 2:
        return (1, shape[0], shape[1])
    first, second, third = shape
    return (first, second, third) if first < third else (third, first, second)


def _to_channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if images.ndim == 3:
        return images[:, None]
    return images if images.shape[1] < images.shape[3] else images.transpose(0, 3, 1, 2)


def _columns(space: spaces.Space[Any], values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Encode one leaf, ``[N, *shape]``, as float32 ``[N, size]``."""
    match space:
        case spaces.Discrete():
            return _one_hot(values.reshape(-1, 1) - space.start, np.array([space.n]))
        case spaces.MultiDiscrete():
            start = np.ravel(space.start)
            return _one_hot(values.reshape(len(values), -1) - start, np.ravel(space.nvec))
        case _:
            columns = values.reshape(len(values), -1).astype(np.float32, copy=False)
            return columns / np.float32(255) if space.dtype == np.uint8 else columns


def _one_hot(
    values: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Set one column per component: ``values`` is ``[N, K]``, the result ``[N, sum(sizes)]``."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    columns = np.zeros((len(values), int(sizes.sum())), np.float32)
    np.put_along_axis(columns, values + starts, 1.0, axis=1)
    return columns
