"""Layers of the built-in networks: stacks of linear layers, and memories.

Weights are ``[inputs, outputs]``, as the numpy actors read them. A stack of K equal layers, such as
those of actor and critic, has weights ``[K, inputs, outputs]`` and is one batched product.
Without a generator, initial weights come from torch's global one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from rookery.common.arguments import check_choice

Activation: TypeAlias = Callable[[Tensor], Tensor]

ACTIVATIONS: dict[str, Activation] = {"tanh": torch.tanh, "relu": torch.relu}
HIDDEN_GAIN = 2.0**0.5


class Linear(nn.Module):
    """A linear layer ``x @ weight + bias`` from float32 ``[N, inputs]`` to ``[N, outputs]``.

    Args:
        inputs: number of inputs.
        outputs: number of outputs.
        gain: scale of the initial weights; see `initial`.
        generator: generator of the initial weights.
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
    """K parallel linear layers from ``[N, inputs]`` or ``[K, N, inputs]`` to ``[K, N, outputs]``.

    Args:
        num_members: K, number of layers.
        inputs: number of inputs of each layer.
        outputs: number of outputs of each layer.
        gain: scale of the initial weights; see `initial`.
        generator: generator of the initial weights, which are drawn layer by layer.
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
    """K parallel multilayer perceptrons; without layers, the input is the result.

    Args:
        num_members: K, number of perceptrons.
        sizes: widths, from the inputs to the last layer's outputs.
        activation: "tanh" or "relu", after every layer except the last.
        output_gain: scale of the last layer's initial weights; None makes the last layer a hidden
            layer with an activation.
        generator: generator of the initial weights.
        is_orthogonal: whether the initial weights are orthogonal; see `initial`.

    Attributes:
        activation: name of the activation.
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
        check_choice("activation", activation, ACTIVATIONS)
        self._activation = ACTIVATIONS[activation]
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
        """Return the input of the last layer, which is ``x`` if there is only one layer.

        The result of a last layer without activation is ``self[-1](hidden(x))``.
        """
        return self._run(x, len(self) - 1)

    def _run(self, x: Tensor, depth: int) -> Tensor:
        for k in range(depth):
            x = self[k](x)
            if k < self._num_activated:
                x = self._activation(x)
        return x


class Core(nn.Module, ABC):
    """K parallel memories of H units each, for example one for the actor and one for the critic.

    The memory of N envs is float32 ``[N, memory_width]``: one row per env with the concatenated
    states of the K members. It is zero at the start of an episode.

    Attributes:
        num_gates: G, numbers computed from the inputs for each unit.
        num_states: S, numbers remembered by each unit.
        memory_width: K * S * H, numbers remembered per env.
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
        """Advance by one step and return the next memory.

        Args:
            x: inputs, float32 ``[N, F]`` or ``[K, N, F]``.
            memory: float32 ``[N, memory_width]``, zeros for envs that begin an episode.
        """
        return self._join(self._advance(self.input(x), self._state(memory)))

    def unroll(self, x: Tensor, begins: Tensor, memory: Tensor) -> Tensor:
        """Advance by L steps.

        Products that do not read the memory are computed for all steps at once.

        Args:
            x: inputs, float32 ``[L, N, F]`` or ``[K, L, N, F]``.
            begins: bool ``[L, N]``, True where an episode begins and the memory is cleared.
            memory: float32 ``[N, memory_width]``, the memory before the first step.

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
        """Return the members' outputs ``[K, ..., H]`` for memories ``[..., memory_width]``."""
        states = memory.reshape(*memory.shape[:-1], self.num_members, -1)
        return states[..., : self.size].movedim(-2, 0)

    @abstractmethod
    def _advance(self, inputs: Tensor, state: Tensor) -> Tensor:
        """Return the states after ``[K, N, num_states * H]``, for inputs ``[K, N, gates]``."""

    def _state(self, memory: Tensor) -> Tensor:
        return memory.reshape(memory.shape[0], self.num_members, -1).transpose(0, 1)

    def _join(self, state: Tensor) -> Tensor:
        return state.transpose(0, 1).flatten(1)


class GRU(Core):
    """Gated recurrent units: Cho et al. (2014), equations 5 to 8.

    The reset gate is applied after the product with the memory, as in cuDNN. The weights of reset
    gate, update gate and candidate are concatenated.
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

    A state is the output followed by the cell. The weights of input gate, forget gate, candidate
    and output gate are concatenated. Forget gates have an initial bias of one (Jozefowicz et al.
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
        hidden, cell = state.chunk(2, dim=-1)
        enter, forget, candidate, leave = (inputs + self.memory(hidden)).chunk(4, dim=-1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.cat([torch.sigmoid(leave) * torch.tanh(cell), cell], dim=-1)


def initial(
    inputs: int, outputs: int, gain: float | None, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Draw weights ``[inputs, outputs]`` and biases ``[outputs]`` of a linear layer.

    Args:
        inputs: number of inputs.
        outputs: number of outputs.
        gain: scale of orthogonal weights, with biases of zero. None draws weights and biases
            uniformly between ``-1 / sqrt(inputs)`` and ``1 / sqrt(inputs)``, torch's default.
        generator: generator of the weights.
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
