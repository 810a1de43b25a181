"""K equal multilayer perceptrons side by side, forwards and backwards, in numpy.

Their layers are stacked, ``[K, inputs, outputs]``, so that all members are one batched product.
Unlike the towers of `rookery.policy.mlp` they have heads alike, and their inputs have gradients.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.mlp import ACTIVATIONS
from rookery.policy.parameters import ParameterLayout

Floats: TypeAlias = npt.NDArray[np.float32]


class StackPass(NamedTuple):
    """What a forward pass leaves.

    Attributes:
        outputs: float32 ``[K, N, sizes[-1]]``.
        inputs: what every layer read, ``[K, N, inputs]`` each; valid until the next pass over as
            many rows.
    """

    outputs: Floats
    inputs: list[Floats]


class MLPStack:
    """K equal perceptrons over one flat array of parameters.

    Args:
        num_members: K.
        sizes: widths from the inputs to the outputs.
        activation: of the hidden layers, "tanh" or "relu".
        seed: of the initial weights.
        output_gain: scale of the last layer's initial weights.

    Attributes:
        parameters: float32 ``[size]``, changed in place by learners.
        layout: names and places of the parameters.
    """

    def __init__(
        self,
        num_members: int,
        sizes: tuple[int, ...],
        activation: str,
        seed: int,
        output_gain: float = 1.0,
    ) -> None:
        self.num_members = num_members
        self.layout = _layout(num_members, sizes, output_gain)
        self.parameters = self.layout.initial(np.random.default_rng(seed))
        self._activation = ACTIVATIONS[activation]
        self._layers = self._views(self.parameters)
        self._gradient = np.zeros_like(self.parameters)
        self._gradients = self._views(self._gradient)
        self._workspaces: dict[int, tuple[list[Floats], list[Floats]]] = {}

    def forward(self, x: Floats) -> StackPass:
        """Run all members on ``x``, float32 ``[N, sizes[0]]``."""
        inputs = [x[None]]
        *hidden, (weight, bias) = self._layers
        for (w, b), result in zip(hidden, self._workspace(len(x))[0], strict=True):
            np.matmul(inputs[-1], w, out=result)
            result += b
            inputs.append(self._activation.apply(result, out=result))
        return StackPass(inputs[-1] @ weight + bias, inputs)

    def backward(self, done: StackPass, d_outputs: Floats) -> Floats:
        """Turn the gradient by the outputs into that by the parameters.

        Args:
            done: what `forward` returned; used up.
            d_outputs: float32 ``[K, N, sizes[-1]]``.

        Returns:
            float32 ``[size]``, valid until the next call.
        """
        self._walk_back(done, d_outputs, with_parameters=True)
        return self._gradient

    def input_gradient(self, done: StackPass, d_outputs: Floats) -> Floats:
        """Turn the gradient by the outputs into that by the inputs, summed over the members.

        Args:
            done: what `forward` returned; used up.
            d_outputs: float32 ``[K, N, sizes[-1]]``.

        Returns:
            float32 ``[N, sizes[0]]``.
        """
        d_first = self._walk_back(done, d_outputs, with_parameters=False)
        weight, _ = self._layers[0]
        return np.asarray((d_first @ weight.transpose(0, 2, 1)).sum(axis=0))

    def _walk_back(self, done: StackPass, gradient: Floats, with_parameters: bool) -> Floats:
        """Go back to the first layer's outputs; write the parameters' gradients if told."""
        num_rows = gradient.shape[1]
        d_hidden = self._workspace(num_rows)[1]
        # A product with ones sums rows faster than np.sum does; see `mlp.backward`.
        ones = np.ones((1, num_rows), np.float32)
        for k in range(len(self._layers) - 1, -1, -1):
            if with_parameters:
                d_weight, d_bias = self._gradients[k]
                np.matmul(done.inputs[k].transpose(0, 2, 1), gradient, out=d_weight)
                np.matmul(ones, gradient, out=d_bias)
            if k:
                transposed = self._layers[k][0].transpose(0, 2, 1)
                gradient = np.matmul(gradient, transposed, out=d_hidden[k - 1])
                self._activation.backward(gradient, done.inputs[k])
        return gradient

    def _workspace(self, num_rows: int) -> tuple[list[Floats], list[Floats]]:
        """Reuse arrays for the hidden layers' results and gradients; see `mlp.Workspace`."""
        if num_rows not in self._workspaces:
            if len(self._workspaces) > 3:
                self._workspaces.clear()
            shapes = [(self.num_members, num_rows, w.shape[2]) for w, _ in self._layers[:-1]]
            first, second = ([np.empty(shape, np.float32) for shape in shapes] for _ in range(2))
            self._workspaces[num_rows] = first, second
        return self._workspaces[num_rows]

    def _views(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        views = self.layout.views(flat)
        depth = len(views) // 2
        return [(views[f"tower{k}.weight"], views[f"tower{k}.bias"]) for k in range(depth)]


def _layout(num_members: int, sizes: tuple[int, ...], output_gain: float) -> ParameterLayout:
    shapes: dict[str, tuple[int, ...]] = {}
    gains: dict[str, float] = {}
    for k, (width, following) in enumerate(pairwise(sizes)):
        is_last = k == len(sizes) - 2
        shapes[f"tower{k}.weight"] = (num_members, width, following)
        shapes[f"tower{k}.bias"] = (num_members, 1, following)
        gains[f"tower{k}.weight"] = output_gain if is_last else 2**0.5
        gains[f"tower{k}.bias"] = 0.0
    return ParameterLayout(shapes, gains)
