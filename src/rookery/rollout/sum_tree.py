"""A sum tree: sampling by weight in logarithmic time, for whole batches."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]


class SumTree:
    """A binary tree with weights at its leaves and the sum of both children at inner nodes.

    Schaul et al. (2016), appendix B.2.1. Node 1 is the root, and ``2 k`` and ``2 k + 1`` are the
    children of node ``k``.

    Args:
        num_leaves: number of weights; all are zero at first.
    """

    def __init__(self, num_leaves: int) -> None:
        self._depth = max(num_leaves - 1, 1).bit_length()
        self._first_leaf = 2**self._depth
        self._num_leaves = num_leaves
        self._nodes = np.zeros(2 * self._first_leaf, np.float64)

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._nodes[1])

    @property
    def weights(self) -> Doubles:
        """View of all weights, float64 ``[num_leaves]``."""
        return self._nodes[self._first_leaf : self._first_leaf + self._num_leaves]

    def set(self, index: Ints, weight: Doubles | float) -> None:
        """Set the weights of the leaves ``index``, int64 ``[N]``."""
        node = index + self._first_leaf
        self._nodes[node] = weight
        for _ in range(self._depth):
            node >>= 1
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def find(self, mass: Doubles) -> Ints:
        """Find the leaves at which the running sum of weights passes ``mass``.

        Args:
            mass: float64 ``[N]`` in ``[0, total)``.

        Returns:
            Indices of leaves, int64 ``[N]``; never a leaf of weight zero, unless all are.
        """
        mass = mass.copy()
        node = np.ones(len(mass), np.int64)
        for _ in range(self._depth):
            left = 2 * node
            beneath = self._nodes[left]
            # Because of rounding, the mass may exceed the sum of the right side.
            right = (mass >= beneath) & (self._nodes[left + 1] > 0.0)
            mass -= beneath * right
            node = left + right
        return np.asarray(node - self._first_leaf)
