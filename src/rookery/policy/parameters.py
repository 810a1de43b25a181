"""All parameters of a network in one flat float32 array, with a named view for each.

One array makes publishing weights one copy, the optimiser step one kernel, and the gradient norm
one reduction; numpy and torch see the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Shape: TypeAlias = "tuple[int, ...]"

# (kernel, stride, channels) of the three convolutions in Mnih et al. (2015), and their reader.
NATURE_CONVOLUTIONS = ((8, 4, 32), (4, 2, 64), (3, 1, 64))
NATURE_FEATURES = 512


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """Names, shapes and places of the parameters of one actor-critic network.

    Attributes:
        shapes: name -> shape, in the order of the flat array.
        gains: name -> scale of the orthogonal initialisation; 0.0 where all are zero.
    """

    shapes: dict[str, Shape]
    gains: dict[str, float]

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def views(self, flat: Any) -> dict[str, Any]:
        """Return name -> view of ``flat``, which is a numpy array or a tensor ``[size]``."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views

    def initial(self, rng: np.random.Generator) -> Floats:
        """Draw initial parameters: orthogonal weights (Saxe et al. 2014), zero biases."""
        flat = np.zeros(self.size, np.float32)
        for name, view in self.views(flat).items():
            if self.gains[name]:
                view[...] = self.gains[name] * _orthogonal(name, view.shape, rng)
        return flat


def actor_critic_layout(
    vector_size: int,
    image_shapes: tuple[tuple[int, int, int], ...],
    hidden_sizes: tuple[int, ...],
    num_outputs: int,
    has_log_std: bool,
) -> ParameterLayout:
    """Lay out image encoders, two equal towers (actor, critic) and their heads.

    The towers' layers are stacked, ``[2, inputs, outputs]`` with the actor first, so that both are
    computed by one batched product.
    """
    shapes: dict[str, Shape] = {}
    gains: dict[str, float] = {}

    def add(name: str, weight: Shape, bias: Shape, gain: float) -> None:
        shapes[f"{name}.weight"], gains[f"{name}.weight"] = weight, gain
        shapes[f"{name}.bias"], gains[f"{name}.bias"] = bias, 0.0

    width = vector_size
    for i, shape in enumerate(image_shapes):
        width += NATURE_FEATURES
        _add_nature_network(add, f"image{i}", shape)
    for k, hidden in enumerate(hidden_sizes):
        add(f"towers.{k}", (2, width, hidden), (2, 1, hidden), 2**0.5)
        width = hidden
    add("actor", (width, num_outputs), (num_outputs,), 0.01)
    add("critic", (width, 1), (1,), 1.0)
    if has_log_std:
        shapes["log_std"], gains["log_std"] = (num_outputs,), 0.0
    return ParameterLayout(shapes, gains)


def recurrent_layout(
    vector_size: int, memory_size: int, num_outputs: int, has_log_std: bool
) -> ParameterLayout:
    """Lay out two gated recurrent units (actor, critic), stacked as towers are, and their heads.

    The weights of reset gate, update gate and candidate lie side by side, in this order.
    """
    gates = 3 * memory_size
    shapes: dict[str, Shape] = {
        "gru.input.weight": (2, vector_size, gates),
        "gru.input.bias": (2, 1, gates),
        "gru.memory.weight": (2, memory_size, gates),
        "gru.memory.bias": (2, 1, gates),
        "actor.weight": (memory_size, num_outputs),
        "actor.bias": (num_outputs,),
        "critic.weight": (memory_size, 1),
        "critic.bias": (1,),
    }
    gains = {name: float(name.endswith("weight")) for name in shapes}
    gains["actor.weight"] = 0.01
    if has_log_std:
        shapes["log_std"], gains["log_std"] = (num_outputs,), 0.0
    return ParameterLayout(shapes, gains)


def _add_nature_network(add: Any, name: str, shape: tuple[int, int, int]) -> None:
    channels, height, width = shape
    for k, (kernel, stride, filters) in enumerate(NATURE_CONVOLUTIONS):
        add(f"{name}.conv{k}", (filters, channels, kernel, kernel), (filters,), 2**0.5)
        channels = filters
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
    add(f"{name}.linear", (channels * height * width, NATURE_FEATURES), (NATURE_FEATURES,), 2**0.5)


def _orthogonal(name: str, shape: Shape, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw orthonormal rows or columns, whichever are fewer; stacked layers one by one."""
    if name.startswith(("tower", "gru")):
        return np.stack([_orthogonal("", shape[1:], rng) for _ in range(shape[0])])
    rows, columns = shape[0], int(np.prod(shape[1:]))
    draw = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(draw)
    q *= np.sign(np.diag(r))
    return np.asarray(q if rows >= columns else q.T).reshape(shape)
