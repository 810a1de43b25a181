"""Networks of learners from replay, computed by numpy: what a worker acts with, without torch.

The definitions are `QNetwork`, `Quantiles` and `SquashedActor`, in torch; a test holds these to
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.policy.encoder import ObservationEncoder
from rookery.rollout.tree import Tree

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]

_OBS_LIMIT = 10.0


class ArrayWeights:
    """The weights of a `Model` as arrays: its own memory, or that of a copy elsewhere.

    Attributes:
        parameters: float32 ``[size]``.
        mean: float32 ``[D]``, of observations; empty where they are not standardised.
        scale: float32 ``[D]``, one over their deviation.
        exploration: float64 ``[E]``, how to explore.
    """

    def __init__(self, parameters: Floats, mean: Floats, scale: Floats, exploration: Doubles):
        self.parameters = parameters
        self.mean, self.scale, self.exploration = mean, scale, exploration

    def extras(self) -> Doubles:
        """What travels beside the parameters, in the order of `Model.extras`."""
        return np.concatenate([self.mean, self.scale, self.exploration], dtype=np.float64)

    def set_extras(self, extras: Doubles) -> None:
        """Take over what `extras` gave, in place."""
        size = len(self.mean)
        self.mean[...], self.scale[...] = extras[:size], extras[size : 2 * size]
        self.exploration[...] = extras[2 * size :]


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """What fixes a network's arithmetic.

    Attributes:
        observation_space: of one env.
        shapes: name -> shape of the parameters, in order.
        activation: "tanh" or "relu".
        num_quantiles: how many outputs of each action are averaged; 0 where they are no quantiles.
    """

    observation_space: spaces.Space[Any]
    shapes: dict[str, tuple[int, ...]]
    activation: str
    num_quantiles: int = 0


class NumpyNetwork:
    """Outputs for batches of observations, by numpy.

    Args:
        spec: of the network.
        weights: read at every call, so that a change of theirs is one of the outputs.
    """

    def __init__(self, spec: NetworkSpec, weights: ArrayWeights) -> None:
        self.spec, self.weights = spec, weights
        self._encoder = ObservationEncoder(spec.observation_space)
        views = _views(spec.shapes, weights.parameters)
        self._heads = {name: _layer(views, name) for name in ("actor", "critic")}
        self._layers = [
            (views[name], views[name.removesuffix("weight") + "bias"])
            for name in views
            if name.startswith(("towers.", "layers.")) and name.endswith("weight")
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyNetwork, (self.spec, self.weights)

    def outputs(self, obs: Tree) -> Floats:
        """Run on observations ``[N, *obs]``: float32 ``[N, num_outputs]``."""
        x: Any = self._standardized(self._encoder.encode(obs).vector)
        actor, critic = self._heads["actor"], self._heads["critic"]
        num_activated = len(self._layers) - (actor is None)
        for k, (weight, bias) in enumerate(self._layers):
            x = np.matmul(x, weight)
            x += bias
            if k < num_activated:
                x = np.tanh(x, out=x) if self.spec.activation == "tanh" else np.maximum(x, 0, out=x)
        if actor is None:
            return np.asarray(x[0])
        towers = x if x.ndim == 3 else (x, x)
        outputs = towers[0] @ actor[0] + actor[1]
        if self.spec.num_quantiles:
            outputs = outputs.reshape(len(outputs), -1, self.spec.num_quantiles).mean(axis=2)
        if critic is not None:
            outputs += towers[1] @ critic[0] + critic[1] - outputs.mean(axis=1, keepdims=True)
        return np.asarray(outputs)

    def _standardized(self, vector: Floats) -> Floats:
        mean, size = self.weights.mean, len(self.weights.mean)
        if not size:
            return vector
        scaled = (vector[:, :size] - mean) * self.weights.scale
        np.clip(scaled, -_OBS_LIMIT, _OBS_LIMIT, out=scaled)
        return np.concatenate([scaled, vector[:, size:]], axis=1)


def _views(shapes: Mapping[str, tuple[int, ...]], flat: Floats) -> dict[str, Floats]:
    """Views by name, without the names of the modules around the network."""
    views, start = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        short = name
        while short.startswith("network."):
            short = short.removeprefix("network.")
        views[short] = flat[start : start + size].reshape(shape)
        start += size
    return views


def _layer(views: Mapping[str, Floats], name: str) -> tuple[Floats, Floats] | None:
    found = views.get(f"{name}.weight")
    return None if found is None else (found, views[f"{name}.bias"])
