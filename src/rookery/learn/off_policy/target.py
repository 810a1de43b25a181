"""Target networks, and what else of a learner lies apart from the policy's weights."""

from __future__ import annotations

import copy
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rookery.policy.model import FlatParameters

M = TypeVar("M", bound=nn.Module)


class Target(Generic[M]):
    """A copy of a module that follows it, and is never differentiated.

    Args:
        module: what is followed.
        flat: its parameters.

    Attributes:
        module: the copy.
        flat: the parameters of the copy.
    """

    def __init__(self, module: M, flat: FlatParameters) -> None:
        self._followed = flat
        self.module: M = copy.deepcopy(module).requires_grad_(False).eval()
        self.flat = FlatParameters(self.module)

    def follow(self, rate: float) -> None:
        """Go ``rate`` of the way to what is followed; 1 copies it."""
        self.flat.tensor.lerp_(self._followed.tensor, rate)


def to_host(tensor: Tensor) -> npt.NDArray[Any]:
    """Copy a tensor into a fresh numpy array."""
    return np.array(tensor.detach().cpu().numpy())


def fill(tensor: Tensor, values: Any) -> None:
    """Write an array's values into a tensor."""
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(values)))
