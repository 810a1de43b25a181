"""Forward and backward passes of networks: the default towers in numpy, others in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.common.trees import Tree
from rookery.policy.model import FlatParameters
from rookery.policy.numpy import mlp
from rookery.policy.numpy.numpy_policy import NumpyPolicy

Floats: TypeAlias = npt.NDArray[np.float32]


class TowersBackward:
    """The towers of a numpy policy, side by side on minibatches, with their gradient.

    Work arrays are reused: malloc maps and unmaps new arrays of this size at every call. Both
    passes take 250 us with reused arrays and 460 us with new ones.

    Args:
        policy: The policy; its parameters are read in place.

    Attributes:
        gradient: float32 ``[size]``, result of the last `backward`.
        log_std: float32 ``[num_deviations]``; None without such a parameter.
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
        """Return the outputs ``[N, num_outputs]`` and values ``[N]`` for observations."""
        is_plain = isinstance(obs, Tensor) and obs.dim() == 2 and obs.dtype == torch.float32
        x = (obs if is_plain else self._encoder(obs)).numpy()
        if len(x) not in self._kept:
            if len(self._kept) > 3:  # normally two sizes, because minibatches differ by one row
                self._kept.clear()
            self._kept[len(x)] = tuple(mlp.Workspace.allocate(self._towers, len(x)) for _ in "fb")  # type: ignore[assignment]
        forward = self._kept[len(x)][0]
        outputs, value, self._inputs = mlp.forward(self._towers, self._activation, x, forward)
        return outputs, value

    def backward(self, d_outputs: Floats, d_values: Floats, d_log_std: Floats | None) -> None:
        """Compute ``gradient`` from the gradients of the last `forward` result, once per result."""
        if self._log_std_gradient is not None:
            self._log_std_gradient[...] = d_log_std
        towers, gradients, inputs = self._towers, self._gradients, self._inputs
        last = inputs[-1]
        # A product with ones sums the rows in 3 us; np.sum over that axis takes 12 us.
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


# These multiply a gradient in place by the derivative at a result, and may overwrite the result.
_DERIVATIVES = {"tanh": _tanh, "relu": _relu}


class TorchNetwork:
    """Any network, which torch runs and differentiates from gradients of its outputs.

    Args:
        run: Function from observations ``[N, *obs]``, a tree of tensors, to a `Prediction`.
        flat: Parameters of the module.
        log_std: The parameter ``log_std``, which the module itself does not use, or None.

    Attributes:
        gradient: float32 ``[size]``, result of the last `backward`.
        log_std: float32 ``[num_deviations]``; None without such a parameter.
    """

    def __init__(self, run: Callable[[Tree], Any], flat: FlatParameters, log_std: Any) -> None:
        self._run, self._flat, self._log_std = run, flat, log_std
        self.log_std: Floats | None = None if log_std is None else log_std.detach().numpy()

    def forward(self, obs: Tree) -> tuple[Floats, Floats]:
        """Return the outputs ``[N, num_outputs]`` and values ``[N]`` for observations."""
        found = self._run(obs)
        self._found = found.outputs, found.value
        outputs, value = (tensor.detach().numpy() for tensor in self._found)
        return outputs, value

    def backward(self, d_outputs: Floats, d_values: Floats, d_log_std: Floats | None) -> None:
        """Compute ``gradient`` from the gradients of the last `forward` result, once per result."""
        # A scalar with these gradients is differentiated. If the gradients were passed to autograd,
        # torch would import sympy, which takes half a second.
        outputs, value = self._found
        loss = (outputs * torch.from_numpy(d_outputs)).sum()
        loss = loss + torch.dot(value, torch.from_numpy(d_values))
        if d_log_std is not None:
            loss = loss + torch.dot(self._log_std, torch.from_numpy(d_log_std))
        self.gradient = self._flat.gradient(loss)
