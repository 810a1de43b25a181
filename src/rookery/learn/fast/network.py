"""A network of any kind: torch runs it, and goes back through it from gradients derived by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from rookery.common.trees import Tree
from rookery.policy.model import FlatParameters

Floats: TypeAlias = npt.NDArray[np.float32]


class TorchNetwork:
    """Runs a module on minibatches, and differentiates it.

    Args:
        run: observations ``[N, *obs]``, a tree of tensors, to a `Prediction`.
        flat: the module's parameters.
        log_std: the parameter of that name, which the module does not read; None if there is none.

    Attributes:
        gradient: float32 ``[size]``, what the last `backward` found.
        log_std: float32 ``[num_deviations]``; None where there are none.
    """

    def __init__(self, run: Callable[[Tree], Any], flat: FlatParameters, log_std: Any) -> None:
        self._run, self._flat, self._log_std = run, flat, log_std
        self.log_std: Floats | None = None if log_std is None else log_std.detach().numpy()

    def forward(self, obs: Tree) -> tuple[Floats, Floats]:
        """Run: outputs ``[N, num_outputs]`` and values ``[N]``."""
        found = self._run(obs)
        self._found = found.outputs, found.value
        outputs, value = (tensor.detach().numpy() for tensor in self._found)
        return outputs, value

    def backward(self, d_outputs: Floats, d_values: Floats, d_log_std: Floats | None) -> None:
        """Find the gradients, given those by what the last `forward` returned; it is used up."""
        # A loss with these gradients, instead of gradients for the engine to begin with: for them
        # torch imports a computer algebra system, which takes half a second.
        outputs, value = self._found
        loss = (outputs * torch.from_numpy(d_outputs)).sum()
        loss = loss + torch.dot(value, torch.from_numpy(d_values))
        if d_log_std is not None:
            loss = loss + torch.dot(self._log_std, torch.from_numpy(d_log_std))
        self.gradient = self._flat.gradient(loss)
