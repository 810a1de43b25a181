"""Forward and backward pass of actor and critic side by side, in numpy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.common.trees import Tree
from rookery.policy.numpy import mlp
from rookery.policy.numpy.numpy_policy import NumpyPolicy

Floats: TypeAlias = npt.NDArray[np.float32]


class TowersBackward:
    """Runs the towers of a numpy actor on minibatches, and differentiates them.

    Fresh arrays of this size are mapped and unmapped by malloc every time: with them both passes
    take 460 us, with kept ones 250.

    Args:
        policy: acts with the parameters, which are read where they lie.

    Attributes:
        gradient: float32 ``[size]``, what the last `backward` found.
        log_std: float32 ``[num_deviations]``; None where there are none.
    """

    def __init__(self, policy: NumpyPolicy) -> None:
        spec = policy.spec
        self.gradient = torch.zeros_like(policy.model.flat.tensor)
        views, gradients = map(spec.views, (policy.model.parameters, self.gradient.numpy()))
        self.log_std, self._log_std_gradient = views.get("log_std"), gradients.get("log_std")
        self._towers, self._gradients = mlp.Towers.of(views), mlp.Towers.of(gradients)
        self._encoder = policy.model.module.encoder
        self._activation = mlp.ACTIVATIONS[spec.activation]
        self._derive = _DERIVATIVES[spec.activation]
        self._kept: dict[int, tuple[mlp.Workspace, mlp.Workspace]] = {}

    def forward(self, obs: Tree) -> tuple[Floats, Floats]:
        """Run on observations: outputs ``[N, num_outputs]`` and values ``[N]``."""
        is_plain = isinstance(obs, Tensor) and obs.dim() == 2 and obs.dtype == torch.float32
        x = (obs if is_plain else self._encoder(obs)).numpy()
        if len(x) not in self._kept:
            if len(self._kept) > 3:  # there are two sizes, of minibatches that differ by one
                self._kept.clear()
            self._kept[len(x)] = tuple(mlp.Workspace.allocate(self._towers, len(x)) for _ in "fb")  # type: ignore[assignment]
        forward = self._kept[len(x)][0]
        outputs, value, self._inputs = mlp.forward(self._towers, self._activation, x, forward)
        return outputs, value

    def backward(self, d_outputs: Floats, d_values: Floats, d_log_std: Floats | None) -> None:
        """Find the gradients, given those by what the last `forward` returned; it is used up."""
        if self._log_std_gradient is not None:
            self._log_std_gradient[...] = d_log_std
        towers, gradients, inputs = self._towers, self._gradients, self._inputs
        last = inputs[-1]
        # A product with ones sums the rows in 3 us where np.sum over that axis takes 12.
        ones = np.ones((1, len(d_values)), np.float32)
        np.matmul(last[0].T, d_outputs, out=gradients.actor[0])
        np.matmul(ones[0], d_outputs, out=gradients.actor[1])
        np.matmul(last[-1].T, d_values, out=gradients.critic[0][:, 0])
        np.matmul(ones, d_values, out=gradients.critic[1])
        if not towers.layers:
            return
        spaces = self._kept[len(d_values)][1].hidden
        d_hidden = spaces[-1]
        np.matmul(d_outputs, towers.actor[0].T, out=d_hidden[0])
        np.multiply(d_values[:, None], towers.critic[0][:, 0], out=d_hidden[1])
        for k in range(len(towers.layers) - 1, -1, -1):
            self._derive(d_hidden, inputs[k + 1])
            np.matmul(inputs[k].transpose(0, 2, 1), d_hidden, out=gradients.layers[k][0])
            np.matmul(ones, d_hidden, out=gradients.layers[k][1])
            if k:
                transposed = towers.layers[k][0].transpose(0, 2, 1)
                d_hidden = np.matmul(d_hidden, transposed, out=spaces[k - 1])


def _tanh(gradient: Floats, result: Floats) -> None:
    np.multiply(result, result, out=result)
    np.subtract(np.float32(1), result, out=result)
    np.multiply(gradient, result, out=gradient)


def _relu(gradient: Floats, result: Floats) -> None:
    np.multiply(gradient, result > 0.0, out=gradient)


# Multiply a gradient by the derivative, a function of the result, which may be overwritten.
_DERIVATIVES = {"tanh": _tanh, "relu": _relu}
