"""What every action distribution does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Actions: TypeAlias = npt.NDArray[Any]
# (d_log_prob [N], d_entropy [N]) -> (d_outputs [N, num_outputs], d_log_std [num_outputs] or None)
HeadBackward: TypeAlias = Callable[[Floats, Floats], tuple[Floats, "Floats | None"]]


class HeadEvaluation(NamedTuple):
    """What a distribution says about given actions, and the way back through it.

    Attributes:
        log_prob: float32 ``[N]``.
        entropy: float32 ``[N]``.
        backward: from the gradients of both, the gradients of ``outputs`` and ``log_std``.
    """

    log_prob: Floats
    entropy: Floats
    backward: HeadBackward


class ActionHead(ABC):
    """A family of distributions over one action space.

    ``outputs`` are the network's, float32 ``[N, num_outputs]``; ``log_std`` is float32
    ``[num_outputs]`` where there is one, else empty.

    Attributes:
        num_outputs: how many numbers the network gives per observation.
        has_log_std: whether there is a learned, state-independent log standard deviation.
    """

    num_outputs: int
    has_log_std: bool = False

    @abstractmethod
    def sample(self, outputs: Floats, log_std: Floats, rng: np.random.Generator) -> Actions:
        """Draw one action per row, ``[N, *action]``, in the action space's own terms."""

    @abstractmethod
    def mode(self, outputs: Floats) -> Actions:
        """Return the most probable action per row, ``[N, *action]``."""

    @abstractmethod
    def encode(self, action: Actions) -> npt.NDArray[Any]:
        """Return actions as `evaluate` reads them, ``[N, K]``."""

    @abstractmethod
    def evaluate(self, outputs: Floats, log_std: Floats, action: Actions) -> HeadEvaluation:
        """Evaluate encoded actions ``[N, K]``."""

    def to_env(self, action: Actions) -> Actions:
        """Make drawn actions fit the action space."""
        return action
