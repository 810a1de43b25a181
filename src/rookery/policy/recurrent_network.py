"""The learner's view of a recurrent policy, in torch: unrolled over pieces of rollouts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rookery.policy.feed import Feed
from rookery.policy.heads.base import Actions
from rookery.policy.network import Evaluation
from rookery.policy.old_model import ActorCriticModel
from rookery.policy.placement import Placement, host

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
    """Computes a recurrent model by torch operations; see `TorchNetwork`."""

    def __init__(self, model: ActorCriticModel, device: str = "cpu") -> None:
        self._head = model.head
        self._placement = Placement(model, device)
        self._feed = Feed(self._placement.device)
        self.parameters = self._placement.parameters

    def learning(self) -> AbstractContextManager[None]:
        """See `Network.learning`."""
        return self._placement.learning()

    def send(self, features: Any) -> Callable[[], Any]:
        """See `Network.send`."""
        return self._feed.send(features)

    def unroll(self, sequences: Sequences) -> Floats:
        """Compute the memory after every step, float32 ``[L, M, 2 H]``, without gradients."""
        with torch.inference_mode():
            memories = host(self._memories(self._parts(), sequences))
        return np.concatenate([memories[:, 0], memories[:, 1]], axis=2)

    def evaluate(self, sequences: Sequences, action: Actions) -> Evaluation:
        """Evaluate the N valid steps, in order of time and piece; see `Network.evaluate`."""
        parts = self._parts()
        valid = self._placement.tensor(sequences.valid)
        actors, critics = self._memories(parts, sequences).unbind(1)
        outputs = torch.addmm(parts["actor.bias"], actors[valid], parts["actor.weight"])
        value = torch.addmm(parts["critic.bias"], critics[valid], parts["critic.weight"]).squeeze(1)
        head = self._head.evaluate(host(outputs), self._placement.log_std(), action)

        def backward(d_log_prob: Floats, d_entropy: Floats, d_value: Floats) -> Any:
            d_outputs, d_log_std = head.backward(d_log_prob, d_entropy)
            return self._placement.gradient([outputs, value], [d_outputs, d_value], d_log_std)

        return Evaluation(head.log_prob, head.entropy, host(value), backward)

    def _memories(self, parts: dict[str, Tensor], sequences: Sequences) -> Tensor:
        """Walk through time: memories after every step, ``[L, 2, M, H]``.

        All that reads no memory is computed for all steps at once.
        """
        size = sequences.memory.shape[1] // 2
        place = self._placement.tensor
        vector = place(sequences.vector)[:, None]
        inputs = vector @ parts["gru.input.weight"] + parts["gru.input.bias"]
        kept = (~place(sequences.begins)).to(torch.float32)[:, :, None]
        memory = place(sequences.memory).reshape(-1, 2, size).transpose(0, 1)
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
        return self._placement.views(self._placement.flat)
