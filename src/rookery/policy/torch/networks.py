"""Networks from features to outputs of actors, in torch.

Actor and critic share no weights behind the encoder. Their towers have equal sizes, so both are
computed as one batched product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rookery.common.arguments import check_choice
from rookery.policy.torch.layers import GRU, LSTM, Core, Linear, StackedMLP

CORES: dict[str, type[GRU | LSTM]] = {"gru": GRU, "lstm": LSTM}


class Prediction(NamedTuple):
    """The result of an actor-critic network for N observations, or for L steps of N envs.

    Attributes:
        outputs: float32 ``[N, num_outputs]`` or ``[L, N, num_outputs]``, for a distribution.
        value: float32 ``[N]`` or ``[L, N]``.
        memory: float32 ``[N, memory_width]`` or ``[L, N, memory_width]``, the next memory; None
            without a memory.
    """

    outputs: Tensor
    value: Tensor
    memory: Tensor | None = None


class MLP(nn.Module):
    """A multilayer perceptron: float32 ``[N, inputs]`` to ``[N, hidden_sizes[-1]]``.

    Args:
        inputs: number of inputs.
        hidden_sizes: widths of the layers, each with an activation.
        activation: "tanh" or "relu".
        generator: generator of the initial weights.
    """

    def __init__(
        self,
        inputs: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "tanh",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (inputs, *hidden_sizes)
        self.layers = StackedMLP(1, sizes, activation, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)[0] if len(self.layers) else x


class ActorCritic(nn.Module):
    """An actor tower and a critic tower, each with a head and an optional memory before it.

    Args:
        num_features: F, number of features.
        num_outputs: number of outputs of the actor; see `rookery.policy.actions.action_layout`.
        hidden_sizes: widths of the towers' layers; () connects both heads, or both memories, to the
            features.
        activation: "tanh" or "relu", in the towers.
        core: "gru" or "lstm" for a memory behind each tower, or "none".
        core_size: H, number of units of each memory.
        generator: generator of the initial weights.
        is_orthogonal: True draws orthogonal initial weights. Those of the actor's head are scaled
            by 0.01, so that the first actions are nearly uniform. False draws the weights of towers
            and heads as torch does by default; see `rookery.policy.torch.layers.initial`.
        shows_latent: whether the input of the actor's head is appended to the outputs.

    Attributes:
        memory_width: number of floats remembered per env; 0 without a memory.
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "tanh",
        *,
        core: str = "none",
        core_size: int = 64,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
        shows_latent: bool = False,
    ) -> None:
        super().__init__()
        sizes = (num_features, *hidden_sizes)
        self.towers = StackedMLP(
            2, sizes, activation, generator=generator, is_orthogonal=is_orthogonal
        )
        self.core_name = core
        self.core = _core(core, sizes[-1], core_size, generator)
        width = latent_width(num_features, hidden_sizes, core, core_size)
        actor_gain, critic_gain = head_gains(is_orthogonal)
        self.actor = Linear(width, num_outputs, actor_gain, generator)
        self.critic = Linear(width, 1, critic_gain, generator)
        self._shows_latent = shows_latent
        self.memory_width = 0 if self.core is None else self.core.memory_width

    def forward(self, features: Tensor, memory: Tensor | None = None) -> Prediction:
        """Run on features of N observations.

        Args:
            features: float32 ``[N, F]``.
            memory: float32 ``[N, memory_width]``, zeros for envs that begin an episode.
        """
        hidden = self.towers(features)
        if self.core is not None:
            assert memory is not None, "a recurrent network needs its memory"
            memory = self.core.step(hidden, memory)
            hidden = self.core.read(memory)
        return Prediction(*self._heads(hidden), memory)

    def unroll(self, features: Tensor, begins: Tensor, memory: Tensor) -> Prediction:
        """Run on L steps of N envs.

        Args:
            features: float32 ``[L, N, F]``.
            begins: bool ``[L, N]``, True where an episode begins and the memory is cleared.
            memory: float32 ``[N, memory_width]``, the memory before the first step.
        """
        assert self.core is not None, "only a recurrent network is unrolled"
        hidden = self.towers(features.flatten(0, 1))
        hidden = hidden.reshape(*hidden.shape[:-2], *begins.shape, -1)
        memories = self.core.unroll(hidden, begins, memory)
        outputs, value = self._heads(self.core.read(memories).flatten(1, 2))
        return Prediction(outputs.view(*begins.shape, -1), value.view(begins.shape), memories)

    def _heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        # Without towers and memory, both heads read the features themselves.
        actor, critic = (hidden, hidden) if hidden.dim() == 2 else hidden.unbind(0)
        outputs = self.actor(actor)
        if self._shows_latent:
            outputs = torch.cat([outputs, actor], dim=1)
        return outputs, self.critic(critic).squeeze(1)


class SquashedActor(nn.Module):
    """SAC's actor, from features ``[N, F]`` to outputs ``[N, 2 A]`` of a `SquashedGaussian`.

    The squashed first half is the action of a deterministic actor (TD3). With ``shows_latent``, the
    outputs are the means and the input of the last layer: ``[N, A + H]``.

    Args:
        num_features: F, number of features.
        num_actions: A, number of components of an action.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        generator: generator of the initial weights.
        shows_latent: whether the input of the last layer replaces the standard deviations.
        is_orthogonal: whether the initial weights are orthogonal; see `ActorCritic`.
    """

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        generator: torch.Generator | None = None,
        shows_latent: bool = False,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__()
        sizes = (num_features, *hidden_sizes, num_actions * (1 if shows_latent else 2))
        self.layers = StackedMLP(1, sizes, activation, 0.01, generator, is_orthogonal)
        self._shows_latent = shows_latent

    def forward(self, features: Tensor) -> Tensor:
        if not self._shows_latent:
            outputs: Tensor = self.layers(features)[0]
            return outputs
        hidden = self.layers.hidden(features)
        latent = hidden if hidden.dim() == 2 else hidden[0]
        return torch.cat([self.layers[-1](hidden)[0], latent], dim=1)


def latent_width(
    num_features: int, hidden_sizes: Sequence[int], core: str = "none", core_size: int = 64
) -> int:
    """Return the width of the input of the actor's head; see `ActorCritic`."""
    return (num_features, *hidden_sizes)[-1] if core == "none" else core_size


def head_gains(is_orthogonal: bool) -> tuple[float | None, float | None]:
    """Return the gains of the initial weights of an actor's and a critic's head."""
    return (0.01, 1.0) if is_orthogonal else (None, None)


def _core(name: str, inputs: int, size: int, generator: torch.Generator | None) -> Core | None:
    if name == "none":
        return None
    check_choice("core", name, ("none", *CORES))
    return CORES[name](2, inputs, size, generator)
