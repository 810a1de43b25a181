"""Policies that act on a network's outputs alone, as learners from replay want them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rookery.policy.actions import ActionLayout
from rookery.policy.base import Policy, PolicyStep
from rookery.policy.travel import stream
from rookery.rollout.tree import Tree


class ExploringWeights(Protocol):
    """Weights with which the way of exploring travels.

    Attributes:
        parameters: float32 ``[size]``.
        exploration: float64 ``[E]``; what they mean is the policy's.
    """

    parameters: npt.NDArray[np.float32]
    exploration: npt.NDArray[np.float64]

    def extras(self) -> npt.NDArray[np.float64]:
        """What travels beside the parameters."""

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Take over what `extras` gave."""


class OutputsNetwork(Protocol):
    """Something that runs a network: `NumpyNetwork`, or `ModuleNetwork` through torch.

    It is pickled with its weights.
    """

    weights: Any

    def outputs(self, obs: Tree) -> npt.NDArray[np.float32]:
        """Run on observations ``[N, *obs]``: float32 ``[N, num_outputs]``."""


class OutputsPolicy(Policy):
    """Acts on outputs; log probabilities and values are NaN: nobody reads them.

    Args:
        layout: of the actions.
        network: gives the outputs.
        rng: draws the actions.
        model: what a learner changes; None takes the network's weights, as in a worker.

    Attributes:
        rng: draws the actions.
    """

    model: Any

    def __init__(
        self,
        layout: ActionLayout,
        network: OutputsNetwork,
        rng: np.random.Generator,
        model: Any = None,
    ) -> None:
        self.layout = layout
        self.rng = rng
        self.model = network.weights if model is None else model
        self._network = network

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.layout, self._network, self.rng, self.version)

    @property
    def exploration(self) -> npt.NDArray[np.float64]:
        """How to explore, float64 ``[E]``; it travels with the weights."""
        exploration: npt.NDArray[np.float64] = self.model.exploration
        return exploration

    def use_stream(self, index: int) -> None:
        self.rng = stream(self.rng, index)

    def act(
        self,
        obs: Tree,
        deterministic: bool = False,
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> PolicyStep:
        rows = self._choose(self._network.outputs(obs), deterministic, mask)
        unknown = np.full(len(rows), np.nan, np.float32)
        return PolicyStep(self.layout.decode(rows), unknown, unknown)

    @abstractmethod
    def _choose(
        self,
        outputs: npt.NDArray[np.float32],
        deterministic: bool,
        mask: npt.NDArray[np.bool_] | None,
    ) -> npt.NDArray[Any]:
        """Decide for N rows of outputs: encoded actions ``[N, K]``."""

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        fitted: npt.NDArray[Any] = self.layout.to_env(action)
        return fitted


def _rebuilt(
    kind: type[OutputsPolicy],
    layout: ActionLayout,
    network: OutputsNetwork,
    rng: np.random.Generator,
    version: int,
) -> OutputsPolicy:
    policy = kind(layout, network, rng)
    policy.version = version
    return policy
