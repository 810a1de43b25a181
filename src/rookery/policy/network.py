"""Networks as a learner sees them: evaluate transitions, then send gradients back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra
from rookery.policy import mlp
from rookery.policy.encoder import Features
from rookery.policy.heads.base import Actions
from rookery.policy.old_model import ActorCriticModel

Floats: TypeAlias = npt.NDArray[np.float32]


class Forward(NamedTuple):
    """What a network makes of N observations.

    Attributes:
        outputs: float32 ``[N, num_outputs]``, of the actor's head.
        value: float32 ``[N]``, of the critic's.
        backward: ``backward(d_outputs, d_value, d_log_std=None)`` turns the gradients of a loss
            by these into its gradient by all parameters, float32 ``[size]``, valid until the next
            one: what an optimiser made with `Network.parameters` takes. Call it once, before the
            next `forward`.
    """

    outputs: Floats
    value: Floats
    backward: Callable[..., Any]


class Evaluation(NamedTuple):
    """What a network says about N transitions.

    Attributes:
        log_prob: float32 ``[N]``.
        entropy: float32 ``[N]``.
        value: float32 ``[N]``.
        backward: as in `Forward`, from the gradients by these three, float32 ``[N]`` each.
    """

    log_prob: Floats
    entropy: Floats
    value: Floats
    backward: Callable[[Floats, Floats, Floats], Any]


class Network(ABC):
    """The actor-critic network of a model, ready for learning.

    Attributes:
        parameters: float32 ``[size]`` for an optimiser to change in place: the model's array, or
            a tensor on another device.
    """

    parameters: Any

    def __init__(self, model: ActorCriticModel) -> None:
        self._head = model.head
        self.parameters = model.parameters
        views = model.layout.views(model.parameters)
        self._own_log_std: Floats = views.get("log_std", np.empty(0, np.float32))

    def learning(self) -> AbstractContextManager[None]:
        """Enter this around gradient steps; the model has the new parameters afterwards."""
        return nullcontext()

    def send(self, features: Any) -> Callable[[], Any]:
        """Start to bring features to where the network computes; the result waits for them."""
        return lambda: features

    def _log_std(self) -> Floats:
        return self._own_log_std

    @abstractmethod
    def forward(self, features: Features) -> Forward:
        """Run on encoded observations under the present parameters."""

    def evaluate(self, features: Features, action: Actions) -> Evaluation:
        """Evaluate encoded observations and actions under the present parameters."""
        outputs, value, backward_outputs = self.forward(features)
        head = self._head.evaluate(outputs, self._log_std(), action)

        def backward(d_log_prob: Floats, d_entropy: Floats, d_value: Floats) -> Any:
            d_outputs, d_log_std = head.backward(d_log_prob, d_entropy)
            return backward_outputs(d_outputs, d_value, d_log_std)

        return Evaluation(head.log_prob, head.entropy, value, backward)


class MLPNetwork(Network):
    """Two towers on a vector, in numpy; see `rookery.policy.mlp` for why."""

    def __init__(self, model: ActorCriticModel) -> None:
        super().__init__(model)
        self._activation = mlp.ACTIVATIONS[model.spec.activation]
        self._towers = mlp.Towers.of(model.layout.views(model.parameters))
        self._gradient = np.zeros_like(model.parameters)
        self._gradient_towers = mlp.Towers.of(model.layout.views(self._gradient))
        self._workspaces: dict[int, mlp.Workspace] = {}

    def forward(self, features: Features) -> Forward:
        x = features.vector
        workspace = self._workspace(len(x))
        outputs, value, inputs = mlp.forward(self._towers, self._activation, x, workspace)

        def backward(d_outputs: Floats, d_value: Floats, d_log_std: Floats | None = None) -> Floats:
            mlp.backward(
                self._towers,
                self._activation,
                inputs,
                d_outputs,
                d_value,
                workspace,
                self._gradient_towers,
            )
            if d_log_std is not None:
                self._gradient[-len(d_log_std) :] = d_log_std  # it is laid out last
            return self._gradient

        return Forward(outputs, value, backward)

    def _workspace(self, num_rows: int) -> mlp.Workspace:
        """Reuse a workspace; there are two sizes, of full minibatches and of the last one."""
        if num_rows not in self._workspaces:
            if len(self._workspaces) > 3:
                self._workspaces.clear()
            self._workspaces[num_rows] = mlp.Workspace.allocate(self._towers, num_rows)
        return self._workspaces[num_rows]


def network_for(model: ActorCriticModel, device: str = "cpu", compiled: bool = False) -> Network:
    """Build the learner's view of ``model``: in numpy, or in torch.

    Torch computes where there are images, on any device but the cpu, and where compiling is asked
    for.

    Raises:
        ConfigError: this machine has no such device, or no compiler.
        MissingExtra: torch is needed, and not installed.
    """
    if not (model.encoder.image_shapes or compiled) and device == "cpu":
        return MLPNetwork(model)
    try:
        from rookery.policy.torch_network import TorchNetwork
    except ImportError as error:
        raise MissingExtra(
            "image networks and devices need torch: pip install 'rookery[train]'"
        ) from error
    return TorchNetwork(model, device, compiled)


def require_machine(device: str, compiled: bool) -> None:
    """Refuse a device or a compilation that this machine cannot do; asks torch only if it must.

    Raises:
        ConfigError: there is no such device, or no compiler.
        MissingExtra: torch is needed, and not installed.
    """
    if device == "cpu" and not compiled:
        return
    try:
        from rookery.policy.compilation import require_compiler
        from rookery.policy.placement import torch_device
    except ImportError as error:
        raise MissingExtra("devices need torch: pip install 'rookery[train]'") from error
    torch_device(device)
    if compiled:
        require_compiler()
