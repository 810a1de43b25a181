"""Arrays that lie with numpy or on a device: what optimisers need to treat both alike.

numpy and torch name the same operations alike (`multiply`, `add`, `divide`, `sqrt`, with `out=`),
so an optimiser is written once, and gives equal numbers on the cpu.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


def operations(array: Any) -> Any:
    """Return the module whose functions take ``array``: numpy, or torch for a tensor."""
    return np if isinstance(array, np.ndarray) else importlib.import_module("torch")


def to_host(array: Any) -> Floats:
    """Copy an array or a tensor into a fresh numpy array."""
    if isinstance(array, np.ndarray):
        return array.copy()
    return np.array(array.detach().cpu().numpy())


def fill(array: Any, values: Floats) -> None:
    """Do ``array[...] = values``, wherever ``array`` lies."""
    array[...] = values if isinstance(array, np.ndarray) else operations(array).from_numpy(values)
