"""Prioritised sampling of replayed transitions, with a sum tree."""

from __future__ import annotations

from typing import Any, TypeAlias

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
            Indices of leaves, int64 ``[N]``; never a leaf of weight zero, unless all weights are
            zero.
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


class Priorities:
    """Sampler that draws transitions in proportion to their last error (Schaul et al. 2016).

    Transition i is drawn with ``P(i) = p_i^alpha / sum_k p_k^alpha`` (equation 1), where
    ``p_i = |error_i| + epsilon``; new ones get the largest priority so far (algorithm 1, line 6).

    Args:
        size: number of places for transitions.
        alpha: exponent of the priorities; 0 draws uniformly, 1 in proportion to the error.
        epsilon: added to the error, so that a transition with error 0 can still be drawn.
    """

    def __init__(self, size: int, alpha: float, epsilon: float = 1e-6) -> None:
        self._tree = SumTree(size)
        self._alpha = alpha
        self._epsilon = epsilon
        self._largest = 1.0

    def admit(self, index: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_]) -> None:
        """Set the places ``index``, int64 ``[N]``, to the largest priority, or 0 if not valid."""
        self._tree.set(index, np.where(valid, self._largest**self._alpha, 0.0))

    def draw(
        self, count: int, rng: np.random.Generator
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Draw one place from each of ``count`` equal parts of the total.

        Returns:
            The places, int64 ``[count]``, and their probabilities, float64 ``[count]``.
        """
        part = self._tree.total / count
        index = self._tree.find((np.arange(count) + rng.random(count)) * part)
        return index, self._tree.weights[index] / self._tree.total

    def learn(self, index: npt.NDArray[np.int64], error: npt.NDArray[np.float32]) -> None:
        """Set the priorities of the transitions ``index`` from their errors, float32 ``[N]``."""
        priority = np.abs(error.astype(np.float64)) + self._epsilon
        self._largest = max(self._largest, float(priority.max()))
        # A transition drawn twice has the same error twice.
        self._tree.set(index, priority**self._alpha)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data; the weights are a view."""
        return {"weights": self._tree.weights, "largest": self._largest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        weights = np.asarray(state["weights"], np.float64)
        self._tree.set(np.arange(len(weights)), weights)
        self._largest = float(state["largest"])
