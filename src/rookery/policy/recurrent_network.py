"""The learner's view of a recurrent policy, in torch: unrolled over pieces of rollouts."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.policy.heads.base import Actions
from rookery.policy.model import ActorCriticModel
from rookery.policy.network import Evaluation

Floats: TypeAlias = npt.NDArray[np.float32]


class Sequences(NamedTuple):
    """M pieces of L steps each, every piece of one env.

    Attributes:
        vector: float32 ``[L, M, D]``, encoded observations.
        begins: bool ``[L, M]``, where an episode begins, so that nothing is remembered.
        memory: float32 ``[M, 2 H]``, what was remembered before the first step.
        valid: bool ``[L, M]``, the steps to evaluate.
    """

    vector: Floats
    begins: npt.NDArray[np.bool_]
    memory: Floats
    valid: npt.NDArray[np.bool_]


class RecurrentNetwork:
    """Computes a recurrent model by torch operations, sharing its parameters' memory."""

    def __init__(self, model: ActorCriticModel) -> None:
        self._head = model.head
        self._layout = model.layout
        self._flat = torch.from_numpy(model.parameters).requires_grad_()
        views = model.layout.views(model.parameters)
        self._log_std = views.get("log_std", np.empty(0, np.float32))

    def unroll(self, sequences: Sequences) -> Floats:
        """Compute the memory after every step, float32 ``[L, M, 2 H]``, without gradients."""
        with torch.inference_mode():
            memories = self._memories(self._parts(), sequences).numpy()
        return np.concatenate([memories[:, 0], memories[:, 1]], axis=2)

    def evaluate(self, sequences: Sequences, action: Actions) -> Evaluation:
        """Evaluate the N valid steps, in order of time and piece; see `Network.evaluate`."""
        parts = self._parts()
        valid = torch.from_numpy(sequences.valid)
        actors, critics = self._memories(parts, sequences).unbind(1)
        outputs = torch.addmm(parts["actor.bias"], actors[valid], parts["actor.weight"])
        value = torch.addmm(parts["critic.bias"], critics[valid], parts["critic.weight"]).squeeze(1)
        head = self._head.evaluate(outputs.detach().numpy(), self._log_std, action)

        def backward(d_log_prob: Floats, d_entropy: Floats, d_value: Floats) -> Floats:
            d_outputs, d_log_std = head.backward(d_log_prob, d_entropy)
            by = [torch.from_numpy(d_outputs.astype(np.float32)), torch.from_numpy(d_value)]
            (flat,) = torch.autograd.grad([outputs, value], self._flat, by)
            gradient: Floats = flat.numpy()
            if d_log_std is not None:
                gradient[-len(d_log_std) :] = d_log_std  # it is laid out last
            return gradient

        return Evaluation(head.log_prob, head.entropy, value.detach().numpy(), backward)

    def _memories(self, parts: dict[str, Tensor], sequences: Sequences) -> Tensor:
        """Walk through time: memories after every step, ``[L, 2, M, H]``.

        All that reads no memory is computed for all steps at once.
        """
        size = sequences.memory.shape[1] // 2
        vector = torch.from_numpy(np.ascontiguousarray(sequences.vector))[:, None]
        inputs = vector @ parts["gru.input.weight"] + parts["gru.input.bias"]
        kept = torch.from_numpy(~sequences.begins).to(torch.float32)[:, :, None]
        memory = torch.from_numpy(np.ascontiguousarray(sequences.memory))
        memory = memory.view(-1, 2, size).transpose(0, 1)
        memories = []
        for x, keep in zip(inputs, kept, strict=True):
            memory = memory * keep
            old = torch.baddbmm(parts["gru.memory.bias"], memory, parts["gru.memory.weight"])
            gates = torch.sigmoid(x[..., : 2 * size] + old[..., : 2 * size])
            reset, update = gates.chunk(2, dim=2)
            candidate = torch.tanh(x[..., 2 * size :] + reset * old[..., 2 * size :])
            memory = torch.lerp(candidate, memory, update)
            memories.append(memory)
        return torch.stack(memories)

    def _parts(self) -> dict[str, Tensor]:
        """Views by name. One split is one node of the graph, so the gradient is one tensor."""
        shapes = self._layout.shapes
        sizes = [int(np.prod(shape)) for shape in shapes.values()]
        pairs = zip(shapes.items(), torch.split(self._flat, sizes), strict=True)
        return {name: part.view(shape) for (name, shape), part in pairs}
