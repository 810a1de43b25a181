"""Networks from features to what algorithms read, in torch; encoders make the features.

Actor and critic share no weights behind the encoder. Their towers are equal, so both are computed
as one batched product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rookery.errors import ConfigError
from rookery.policy.torch.layers import GRU, LSTM, Core, Linear, StackedMLP

CORES: dict[str, type[GRU | LSTM]] = {"gru": GRU, "lstm": LSTM}


class Prediction(NamedTuple):
    """What an actor-critic network makes of N observations, or of L steps of N envs.

    Attributes:
        outputs: float32 ``[N, num_outputs]`` or ``[L, N, num_outputs]``, for a distribution.
        value: float32 ``[N]`` or ``[L, N]``.
        memory: float32 ``[N, memory_width]`` or ``[L, N, memory_width]``, afterwards; None where
            nothing is remembered.
    """

    outputs: Tensor
    value: Tensor
    memory: Tensor | None = None


class MLP(nn.Module):
    """A multilayer perceptron: float32 ``[N, inputs]`` to ``[N, hidden_sizes[-1]]``.

    Args:
        inputs: width of what is read.
        hidden_sizes: widths of the layers, each with an activation.
        activation: "tanh" or "relu".
        generator: draws the initial weights.
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
    """Two towers, maybe with a memory behind each, and a head on each.

    Args:
        num_features: F, width of what is read.
        num_outputs: of the actor's head; see `rookery.policy.actions.action_layout`.
        hidden_sizes: widths of the towers' layers; () lets both heads, or both memories, read the
            features.
        activation: "tanh" or "relu", in the towers.
        core: "gru" or "lstm" for a memory behind each tower; "none" remembers nothing.
        core_size: H, units of each memory.
        generator: draws the initial weights: orthogonal, the actor's head a hundredth, so that
            the first actions are nearly uniform.
        is_orthogonal: False draws those of towers and heads as torch does where nothing else is
            said; see `rookery.policy.torch.layers.initial`.
        shows_latent: whether what the actor's head reads follows in the outputs.

    Attributes:
        memory_width: numbers remembered of one env; 0 where nothing is.
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
            memory: float32 ``[N, memory_width]``, zeros where an episode begins.
        """
        hidden = self.towers(features)
        if self.core is not None:
            assert memory is not None, "a network that remembers needs its memory"
            memory = self.core.step(hidden, memory)
            hidden = self.core.read(memory)
        return Prediction(*self._heads(hidden), memory)

    def unroll(self, features: Tensor, begins: Tensor, memory: Tensor) -> Prediction:
        """Run on L steps of N envs.

        Args:
            features: float32 ``[L, N, F]``.
            begins: bool ``[L, N]``, where an episode begins, so that nothing is remembered.
            memory: float32 ``[N, memory_width]``, before the first step.
        """
        assert self.core is not None, "only a network that remembers is unrolled"
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
    """The actor of SAC: features ``[N, F]`` to the outputs of a `SquashedGaussian`, ``[N, 2 A]``.

    The squashed first half is the action of a deterministic actor (TD3). With ``shows_latent``
    the outputs are means, and what the last layer reads: ``[N, A + H]``.

    Args:
        num_features: F, width of what is read.
        num_actions: A, how many numbers an action has.
        hidden_sizes: widths of the hidden layers.
        activation: "tanh" or "relu", in the hidden layers.
        generator: draws the initial weights.
        shows_latent: whether what the last layer reads takes the place of raw deviations.
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
    """The width of what the actor's head reads; see `ActorCritic`."""
    return (num_features, *hidden_sizes)[-1] if core == "none" else core_size


def head_gains(is_orthogonal: bool) -> tuple[float | None, float | None]:
    """The scales of the initial weights of an actor's and a critic's head; see `initial`."""
    return (0.01, 1.0) if is_orthogonal else (None, None)


def _core(name: str, inputs: int, size: int, generator: torch.Generator | None) -> Core | None:
    if name == "none":
        return None
    if name not in CORES:
        raise ConfigError(f"memory {name!r} is not known; choose from none, {', '.join(CORES)}")
    return CORES[name](2, inputs, size, generator)
