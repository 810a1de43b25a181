"""Priorities of prioritised experience replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.rollout.sum_tree import SumTree


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
