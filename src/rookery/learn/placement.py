"""The device on which a model is trained, and the choice of how gradients are computed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

import torch
from torch import nn

from rookery.common.trees import Tree
from rookery.errors import ConfigError
from rookery.learn.machine import require_compiler, torch_device
from rookery.policy.model import FlatParameters, Model
from rookery.policy.torch.encoders import to_tensors

# Layers of torch that compute the same in training and in evaluation mode.
_WITHOUT_MODES: set[type[nn.Module]] = {
    nn.Linear, nn.Conv2d, nn.LayerNorm, nn.Embedding, nn.Identity, nn.Flatten, nn.Sequential,
    nn.ModuleList, nn.ModuleDict, nn.ReLU, nn.Tanh, nn.ELU, nn.SiLU,
}  # fmt: skip

M = TypeVar("M", bound=nn.Module)
F = TypeVar("F", bound=Callable[..., Any])


class Placement(Generic[M]):
    """The module of a model on the device of its learner.

    On the CPU, this is the module of the model. On another device it is a copy. Within `learning`
    the copy has the current weights; outside, the model has them.

    Args:
        model: The model to train.
        device: "cpu", "cuda", "cuda:N" or "mps".
        compiles: True to compile the module's ``run`` with torch.compile.

    Attributes:
        module: The module on the device.
        run: The module's ``run``, compiled if ``compiles`` is set.
        flat: Parameters of the module: ``flat.gradient(loss)``, and ``flat.tensor`` for optimizers.
        device: Device of the module.
    """

    def __init__(self, model: Model, device: str = "cpu", compiles: bool = False) -> None:
        self._model = model
        self.device = torch_device(device)
        self._is_shared = is_there(model, self.device)
        module = model.module if self._is_shared else copy.deepcopy(model.module).to(self.device)
        self.module = cast(M, module)
        self.flat = model.flat if self._is_shared else FlatParameters(module)
        run: Any = getattr(module, "run", module)
        self.run = compiled(run) if compiles else run
        self._has_modes = _has_modes(module)

    @contextmanager
    def learning(self) -> Iterator[M]:
        """Copy the weights to the device and back afterwards, with the module in training mode."""
        if not self._is_shared:
            self.flat.tensor.copy_(torch.from_numpy(self._model.parameters))
            self.flat.load_buffers(self._model.flat.buffers())
        self._switch(is_training=True)
        try:
            yield self.module
        finally:
            self._switch(is_training=False)
            if not self._is_shared:
                self._model.flat.tensor.copy_(self.flat.tensor)
                self._model.flat.load_buffers(self.flat.buffers())
            self._model.gather()

    def _switch(self, *, is_training: bool) -> None:
        """Switch to training or evaluation mode, which takes 50 us if all layers must know."""
        if self._has_modes:
            self.module.train(is_training)
        else:
            self.module.training = is_training

    def tensors(self, tree: Tree) -> Tree:
        """Convert arrays to tensors on the device; on the CPU without a copy."""
        return to_tensors(tree, self.device)


def _has_modes(module: nn.Module) -> bool:
    """Return True if a layer may compute differently in training, as dropout does."""
    return any(
        type(part) not in _WITHOUT_MODES and not type(part).__module__.startswith("rookery.")
        for part in module.modules()
    )


def is_there(model: Model, device: torch.device) -> bool:
    """Return True if the module of ``model`` is on ``device`` already."""
    return model.flat.tensor.device == device


def fused_gradient(policy: Any, config: Any, place: Placement[Any]) -> Any:
    """Return a `rookery.learn.fast.FusedGradient` for a policy that it supports, else None.

    This is the only use of that package. If this function returns None, torch computes everything.
    """
    if config.compile or place.flat is not policy.model.flat:
        return None
    from rookery.learn.fast import FusedGradient

    return FusedGradient.of(policy)


def loss_gradient(
    learner: Any, batch: Any, fused: Any, flat: FlatParameters
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Compute the gradient of ``learner.loss`` for a minibatch, by hand or with torch.

    Args:
        learner: A learner; its `loss` returns a dict with the scalar tensor ``loss``.
        batch: The minibatch, passed to `loss`.
        fused: The result of `fused_gradient` for the learner's policy.
        flat: All parameters of the policy.

    Returns:
        The gradient, float32 ``[size]``, and the result of `loss`.
    """
    found = None if fused is None else fused.gradient(learner, batch)
    if found is None:
        scalars = learner.loss(batch)
        found = flat.gradient(scalars["loss"]), scalars
    return cast("tuple[torch.Tensor, dict[str, Any]]", found)


def compiled(function: F) -> F:
    """Return a function that torch.compile compiles at its first call, in about a minute.

    Raises:
        ConfigError: a compiler is missing, or torch cannot compile in this Python.
    """
    require_compiler()
    try:
        return cast(F, torch.compile(function))
    except RuntimeError as error:
        raise ConfigError(f"torch cannot compile here: {error}; use compile=False") from error
