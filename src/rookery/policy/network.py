"""Networks as a learner sees them: evaluate transitions, then send gradients back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra
from rookery.policy import mlp
from rookery.policy.encoder import Features
from rookery.policy.heads.base import Actions
from rookery.policy.model import ActorCriticModel

Floats: TypeAlias = npt.NDArray[np.float32]


class Forward(NamedTuple):
    """What a network makes of N observations.

    Attributes:
        outputs: float32 ``[N, num_outputs]``, of the actor's head.
        value: float32 ``[N]``, of the critic's.
        backward: ``backward(d_outputs, d_value)`` turns the gradients of a loss by these two into
            its gradient by all parameters, float32 ``[size]``, valid until the next one. Call it
            once, before the next `forward`.
    """

    outputs: Floats
    value: Floats
    backward: Callable[[Floats, Floats], Floats]


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
    backward: Callable[[Floats, Floats, Floats], Floats]


class Network(ABC):
    """The actor-critic network of a model, ready for learning."""

    def __init__(self, model: ActorCriticModel) -> None:
        self._head = model.head
        views = model.layout.views(model.parameters)
        self._log_std = views.get("log_std", np.empty(0, np.float32))

    @abstractmethod
    def forward(self, features: Features) -> Forward:
        """Run on encoded observations under the present parameters."""

    def evaluate(self, features: Features, action: Actions) -> Evaluation:
        """Evaluate encoded observations and actions under the present parameters."""
        outputs, value, backward_outputs = self.forward(features)
        head = self._head.evaluate(outputs, self._log_std, action)

        def backward(d_log_prob: Floats, d_entropy: Floats, d_value: Floats) -> Floats:
            d_outputs, d_log_std = head.backward(d_log_prob, d_entropy)
            gradient = backward_outputs(d_outputs, d_value)
            if d_log_std is not None:
                gradient[-len(d_log_std) :] = d_log_std  # it is laid out last
            return gradient

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

        def backward(d_outputs: Floats, d_value: Floats) -> Floats:
            mlp.backward(
                self._towers,
                self._activation,
                inputs,
                d_outputs,
                d_value,
                workspace,
                self._gradient_towers,
            )
            return self._gradient

        return Forward(outputs, value, backward)

    def _workspace(self, num_rows: int) -> mlp.Workspace:
        """Reuse a workspace; there are two sizes, of full minibatches and of the last one."""
        if num_rows not in self._workspaces:
            if len(self._workspaces) > 3:
                self._workspaces.clear()
            self._workspaces[num_rows] = mlp.Workspace.allocate(self._towers, num_rows)
        return self._workspaces[num_rows]


def network_for(model: ActorCriticModel) -> Network:
    """Build the learner's view of ``model``: in numpy, or in torch where there are images."""
    if not model.encoder.image_shapes:
        return MLPNetwork(model)
    try:
        from rookery.policy.torch_network import TorchNetwork
    except ImportError as error:
        raise MissingExtra("image networks need torch: pip install 'rookery[train]'") from error
    return TorchNetwork(model)
