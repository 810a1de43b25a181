"""Forward pass of two stacked towers (actor and critic), in numpy.

Measured on 256 rows and 2 x 64: torch's tanh costs 84 us where numpy's costs 12, and its batched
product 46 us where numpy's costs 26. With these functions policies act without torch. Tests hold
them to torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]


def _relu(x: Floats, out: Floats) -> Floats:
    return np.maximum(x, np.float32(0), out=out)


# ``activation(x, out=x)``
ACTIVATIONS: dict[str, Callable[..., Floats]] = {"tanh": np.tanh, "relu": _relu}


@dataclass(frozen=True, slots=True)
class Towers:
    """Views of the parameters of towers and heads; their gradients have the same form.

    Attributes:
        layers: ``(weight [2, inputs, outputs], bias [2, 1, outputs])`` per hidden layer.
        actor: weight ``[hidden, num_outputs]`` and bias ``[num_outputs]``.
        critic: weight ``[hidden, 1]`` and bias ``[1]``; None where there is none.
    """

    layers: tuple[tuple[Any, Any], ...]
    actor: tuple[Any, Any]
    critic: Any

    @classmethod
    def of(cls, views: dict[str, Any]) -> Towers:
        """Pick the towers' parameters out of views by name, as `PolicyModule` names its network's.

        Networks of one stack have no heads: their last layer is the actor's.
        """
        stack = "towers" if "actor.weight" in views else "layers"
        depth = sum(n.startswith(f"{stack}.") and n.endswith("weight") for n in views)
        layers = [(views[f"{stack}.{k}.weight"], views[f"{stack}.{k}.bias"]) for k in range(depth)]
        if stack == "layers":
            weight, bias = layers.pop()
            return cls(tuple(layers), (weight[0], bias[0, 0]), None)
        actor = views["actor.weight"], views["actor.bias"]
        has_critic = "critic.weight" in views
        critic = (views["critic.weight"], views["critic.bias"]) if has_critic else None
        return cls(tuple(layers), actor, critic)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where the passes over N rows write, kept from one minibatch to the next.

    Fresh arrays of this size are mapped and unmapped by malloc every time: with them both passes
    take 460 us, with these 250.

    Attributes:
        hidden: float32 ``[2, N, outputs]`` per hidden layer.
    """

    hidden: list[Floats]

    @classmethod
    def allocate(cls, towers: Towers, num_rows: int) -> Workspace:
        """Make the arrays for ``num_rows`` rows."""
        shapes = [(2, num_rows, weight.shape[2]) for weight, _ in towers.layers]
        return cls([np.empty(shape, np.float32) for shape in shapes])


def act(
    towers: Towers, activation: Callable[..., Floats], x: Floats, shows_latent: bool = False
) -> Floats:
    """Run the actor alone: ``x`` float32 ``[N, D]`` to outputs ``[N, num_outputs]``.

    With ``shows_latent`` what the actor's head reads follows in the outputs.
    """
    # For 8 rows, dot takes 0.5 us less than matmul.
    for weight, bias in towers.layers:
        x = x.dot(weight[0])
        x += bias[0]
        activation(x, out=x)
    outputs: Floats = x.dot(towers.actor[0])
    outputs += towers.actor[1]
    return np.concatenate([outputs, x], axis=1) if shows_latent else outputs


def forward(
    towers: Towers, activation: Callable[..., Floats], x: Floats, workspace: Workspace
) -> tuple[Floats, Floats, list[Floats]]:
    """Run both towers on ``x``, float32 ``[N, D]``, in ``workspace``.

    Returns:
        Outputs ``[N, num_outputs]``, values ``[N]``, and what every layer read: ``x``, which both
        towers share, ``[1, N, D]``, then the hidden layers' results in the workspace,
        ``[2, N, inputs]`` each.
    """
    inputs = [x[None]]
    for (weight, bias), hidden in zip(towers.layers, workspace.hidden, strict=True):
        np.matmul(inputs[-1], weight, out=hidden)
        hidden += bias
        inputs.append(activation(hidden, out=hidden))
    outputs = inputs[-1][0] @ towers.actor[0]
    outputs += towers.actor[1]
    values = inputs[-1][-1] @ towers.critic[0][:, 0]
    values += towers.critic[1]
    return outputs, values, inputs
