"""Layers that networks are built of: stacks of linear layers, and memories.

Weights are ``[inputs, outputs]``, as the numpy actors read them. A stack of K equal layers, such as
those of actor and critic, has weights ``[K, inputs, outputs]`` and is one batched product.
Initial weights come from the generator that is given, else from torch's global one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from rookery.errors import ConfigError

Activation: TypeAlias = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {"tanh": torch.tanh, "relu": torch.relu}
HIDDEN_GAIN = 2.0**0.5


class Linear(nn.Module):
    """``x @ weight + bias``: float32 ``[N, inputs]`` to ``[N, outputs]``.

    Args:
        inputs: width of what is read.
        outputs: width of the result.
        gain: see `initial`.
        generator: draws the initial weights.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        gain: float | None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        weight, bias = initial(inputs, outputs, gain, generator)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight)


class StackedLinear(nn.Module):
    """K linear layers side by side: ``[N, inputs]``, or ``[K, N, inputs]``, to ``[K, N, outputs]``.

    Args:
        num_members: K.
        inputs: width of what each reads.
        outputs: width of each one's result.
        gain: see `initial`.
        generator: draws the initial weights, one member after the other.
    """

    def __init__(
        self,
        num_members: int,
        inputs: int,
        outputs: int,
        gain: float | None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        drawn = [initial(inputs, outputs, gain, generator) for _ in range(num_members)]
        weights, biases = zip(*drawn, strict=True)
        self.num_members = num_members
        self.weight = nn.Parameter(torch.stack(weights))
        self.bias = nn.Parameter(torch.stack(biases)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 2:
            x = x.expand(self.num_members, -1, -1)
        return torch.baddbmm(self.bias, x, self.weight)


class StackedMLP(nn.ModuleList):
    """K multilayer perceptrons side by side; without layers, what is read is the result.

    Args:
        num_members: K.
        sizes: widths, from the inputs to the last layer's outputs.
        activation: after every layer but the last, "tanh" or "relu".
        output_gain: scale of the last layer's initial weights; None makes it a hidden layer too,
            with an activation.
        generator: draws the initial weights.
        is_orthogonal: whether they are orthogonal; see `initial`.

    Attributes:
        activation: its name.
    """

    def __init__(
        self,
        num_members: int,
        sizes: Sequence[int],
        activation: str = "tanh",
        output_gain: float | None = None,
        generator: torch.Generator | None = None,
        is_orthogonal: bool = True,
    ) -> None:
        super().__init__()
        self.activation = activation
        self._activation = activation_function(activation)
        self._num_activated = len(sizes) - 1 - (output_gain is not None)
        for k, (inputs, outputs) in enumerate(pairwise(sizes)):
            gain: float | None = HIDDEN_GAIN
            if output_gain is not None and k == self._num_activated:
                gain = output_gain
            gain = gain if is_orthogonal else None
            self.append(StackedLinear(num_members, inputs, outputs, gain, generator))

    def forward(self, x: Tensor) -> Tensor:
        """Run on ``[N, sizes[0]]`` or ``[K, N, sizes[0]]``: ``[K, N, sizes[-1]]``."""
        return self._run(x, len(self))

    def hidden(self, x: Tensor) -> Tensor:
        """What the last layer reads, for `forward`'s ``x``; ``x`` itself where it is the only one.

        The last layer's own result is ``self[-1](hidden(x))`` where it has no activation.
        """
        return self._run(x, len(self) - 1)

    def _run(self, x: Tensor, depth: int) -> Tensor:
        for k in range(depth):
            x = self[k](x)
            if k < self._num_activated:
                x = self._activation(x)
        return x


class Core(nn.Module, ABC):
    """K memories side by side, each of H units; actor and critic remember apart.

    What N envs remember is one row each, float32 ``[N, memory_width]``: the members' states side by
    side. Zeros are remembered where an episode begins.

    Attributes:
        num_gates: G; for each unit, G numbers are computed of what is read.
        num_states: S; each unit remembers S numbers.
        memory_width: numbers that are remembered of one env.
    """

    num_gates: ClassVar[int]
    num_states: ClassVar[int]
    memory_width: int

    def __init__(
        self,
        num_members: int,
        inputs: int,
        size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_members, self.size = num_members, size
        self.memory_width = num_members * self.num_states * size
        gates = self.num_gates * size
        self.input = StackedLinear(num_members, inputs, gates, 1.0, generator)
        self.memory = StackedLinear(num_members, size, gates, 1.0, generator)

    def step(self, x: Tensor, memory: Tensor) -> Tensor:
        """Advance by one step: ``x`` is ``[N, F]`` or ``[K, N, F]``; returns the memory after it.

        Args:
            x: float32, what is read.
            memory: float32 ``[N, memory_width]``, zeros where an episode begins.
        """
        return self._join(self._advance(self.input(x), self._state(memory)))

    def unroll(self, x: Tensor, begins: Tensor, memory: Tensor) -> Tensor:
        """Advance by L steps.

        Products that read no memory are computed for all steps at once.

        Args:
            x: float32 ``[L, N, F]`` or ``[K, L, N, F]``.
            begins: bool ``[L, N]``, where an episode begins, so that nothing is remembered.
            memory: float32 ``[N, memory_width]``, before the first step.

        Returns:
            The memories after every step, float32 ``[L, N, memory_width]``.
        """
        inputs = self.input(x.flatten(-3, -2)).reshape(self.num_members, *begins.shape, -1)
        kept = (~begins).to(x.dtype)[..., None]
        state = self._state(memory)
        states = []
        for now, keep in zip(inputs.unbind(1), kept.unbind(0), strict=True):
            state = self._advance(now, state * keep)
            states.append(self._join(state))
        return torch.stack(states)

    def read(self, memory: Tensor) -> Tensor:
        """What the members show of memories ``[..., memory_width]``: ``[K, ..., H]``."""
        states = memory.reshape(*memory.shape[:-1], self.num_members, -1)
        return states[..., : self.size].movedim(-2, 0)

    @abstractmethod
    def _advance(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Go from states ``[K, N, num_states * H]`` to the next, given ``[K, N, gates]``."""

    def _state(self, memory: Tensor) -> Tensor:
        return memory.reshape(memory.shape[0], self.num_members, -1).transpose(0, 1)

    def _join(self, state: Tensor) -> Tensor:
        return state.transpose(0, 1).flatten(1)


class GRU(Core):
    """Gated recurrent units: Cho et al. (2014), equations 5 to 8.

    The reset gate is applied after the product with the memory, as cuDNN does. The weights of
    reset gate, update gate and candidate lie side by side.
    """

    num_gates, num_states = 3, 1

    def _advance(self, inputs: Tensor, state: Tensor) -> Tensor:
        size = self.size
        remembered = self.memory(state)
        gates = torch.sigmoid(inputs[..., : 2 * size] + remembered[..., : 2 * size])
        reset, update = gates.chunk(2, dim=-1)
        candidate = torch.tanh(inputs[..., 2 * size :] + reset * remembered[..., 2 * size :])
        return torch.lerp(candidate, state, update)


class LSTM(Core):
    """Long short-term memory: Hochreiter and Schmidhuber (1997), with Gers et al.'s forget gate.

    A state is what is shown, then the cell. The weights of input gate, forget gate, candidate and
    output gate lie side by side; forget gates begin open, with a bias of one (Jozefowicz et al.
    2015).
    """

    num_gates, num_states = 4, 2

    def __init__(
        self,
        num_members: int,
        inputs: int,
        size: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_members, inputs, size, generator)
        with torch.no_grad():
            self.input.bias[..., size : 2 * size] = 1.0

    def _advance(self, inputs: Tensor, state: Tensor) -> Tensor:
        shown, cell = state.chunk(2, dim=-1)
        enter, forget, candidate, leave = (inputs + self.memory(shown)).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.cat([torch.sigmoid(leave) * torch.tanh(cell), cell], dim=-1)


def initial(
    inputs: int, outputs: int, gain: float | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw weights ``[inputs, outputs]`` and biases ``[outputs]`` of a linear layer.

    Args:
        inputs: width of what is read.
        outputs: width of the result.
        gain: scale of orthogonal weights, beside which biases are zero; None draws both uniformly
            between ``-1 / sqrt(inputs)`` and ``1 / sqrt(inputs)``, as torch does where nothing else
            is said.
        generator: draws them.
    """
    weight, bias = torch.empty(inputs, outputs), torch.zeros(outputs)
    if gain is not None:
        return orthogonal(weight, gain, generator), bias
    limit = inputs**-0.5
    for tensor in (weight, bias):
        tensor.uniform_(-limit, limit, generator=generator)
    return weight, bias


def orthogonal(weight: Tensor, gain: float, generator: torch.Generator | None) -> Tensor:
    """Fill ``weight`` with orthonormal rows or columns times ``gain``: Saxe et al. (2014)."""
    return nn.init.orthogonal_(weight, gain, generator)


def activation_function(name: str) -> Activation:
    """Find an activation by its name.

    Raises:
        ConfigError: there is none of this name.
    """
    if name not in ACTIVATIONS:
        raise ConfigError(f"activation {name!r} is not known; choose from {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
