"""Observations without images as one row of features, in numpy: what numpy actors read.

The same as `rookery.policy.torch.encoders` and `rookery.policy.torch.observation_normalizer`,
for acting alone. A test holds them to torch's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.policy.space_tree import at_path, leaf_spaces

Floats: TypeAlias = npt.NDArray[np.float32]

OBS_LIMIT = 10.0


class Features:
    """Reads batches of one observation space: numbers first, then choices as ones and zeros.

    Args:
        space: of one env; Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them.
        mean: float32 ``[D]``, subtracted from the D numbers of Boxes; None leaves them as they are.
        scale: float32 ``[D]``, what they are multiplied with afterwards.
    """

    def __init__(
        self, space: spaces.Space[Any], mean: Floats | None = None, scale: Floats | None = None
    ) -> None:
        leaves = leaf_spaces(space)
        self._leaves = sorted(leaves, key=lambda leaf: not isinstance(leaf[1], spaces.Box))
        self._mean, self._scale = mean, scale
        self._is_plain = space.dtype == np.float32 and len(space.shape or ()) == 1

    def __call__(self, obs: Tree) -> Floats:
        """Turn ``[N, *obs]`` into float32 ``[N, F]``, possibly a view of the observations."""
        if self._is_plain:
            x = np.asarray(obs, np.float32)
        else:
            columns = [
                _columns(space, np.asarray(at_path(obs, path))) for path, space in self._leaves
            ]
            x = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        return x if self._mean is None else self._normalized(x)

    def _normalized(self, x: Floats) -> Floats:
        assert self._mean is not None and self._scale is not None
        width = len(self._mean)
        numbers = x[:, :width] - self._mean
        numbers *= self._scale
        np.clip(numbers, -OBS_LIMIT, OBS_LIMIT, out=numbers)
        return numbers if width == x.shape[1] else np.concatenate([numbers, x[:, width:]], axis=1)


def _columns(space: Any, values: npt.NDArray[Any]) -> Floats:
    """Encode one leaf, ``[N, *shape]``, as float32 ``[N, width]``."""
    match space:
        case spaces.Discrete():
            return _one_hot(values.reshape(-1, 1) - space.start, np.array([space.n]))
        case spaces.MultiDiscrete():
            start = np.ravel(space.start)
            return _one_hot(values.reshape(len(values), -1) - start, np.ravel(space.nvec))
        case _:
            columns = values.reshape(len(values), -1).astype(np.float32, copy=False)
            return columns / np.float32(255) if values.dtype == np.uint8 else columns


def _one_hot(values: npt.NDArray[Any], sizes: npt.NDArray[Any]) -> Floats:
    """Set one column per component: ``values`` is ``[N, K]``, the result ``[N, sum(sizes)]``."""
    sizes = sizes.astype(np.int64)  # sums of unsigned ones would be no indices
    starts = np.cumsum(sizes) - sizes
    columns = np.zeros((len(values), int(sizes.sum())), np.float32)
    np.put_along_axis(columns, np.asarray(values, np.int64) + starts, 1.0, axis=1)
    return columns
