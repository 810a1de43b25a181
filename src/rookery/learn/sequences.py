"""From a rollout to pieces in time order: what learners of recurrent policies shuffle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rookery.learn.batch import Batch, Floats
from rookery.policy.old_model import ActorCriticModel
from rookery.policy.recurrent import critic_value, gru
from rookery.rollout import Rollout, gae
from rookery.rollout.tree import merge_axes, take

if TYPE_CHECKING:
    from rookery.policy.recurrent_network import RecurrentNetwork, Sequences


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """M pieces of L steps each.

    Attributes:
        sequences: what the network reads, see `Sequences`.
        columns: action ``[L, M, K]``, then log_prob, value, advantage and returns, ``[L, M]`` each.
    """

    sequences: Sequences
    columns: tuple[npt.NDArray[Any], ...]

    def __len__(self) -> int:
        return len(self.sequences.memory)

    @property
    def rows_per_item(self) -> int:
        """L, the steps of a piece."""
        return len(self.sequences.vector)

    def take(self, index: Any) -> Batch:
        """Return the valid steps of the pieces ``index``, int64 ``[m]``, in order of time."""
        vector, begins, memory, valid = self.sequences
        valid = valid[:, index]
        pieces = type(self.sequences)(vector[:, index], begins[:, index], memory[index], valid)
        return Batch(pieces, *(column[:, index][valid] for column in self.columns))

    def whole(self) -> Batch:
        """Return the valid steps of all pieces."""
        return self.take(slice(None))


def sequence_batch(
    rollout: Rollout,
    reward: Floats,
    model: ActorCriticModel,
    network: RecurrentNetwork,
    gamma: float,
    gae_lambda: float,
    length: int,
) -> SequenceBatch:
    """Estimate advantages and cut the rollout into pieces.

    A piece begins with what was remembered when the rollout was collected, so gradients flow back
    through ``length`` steps at most.

    Args:
        rollout: what was experienced; its first memory included.
        reward: float32 ``[T, B]``, the rollout's, or scaled.
        model: encodes observations and actions.
        network: unrolls the rollout under the weights that acted.
        gamma: discount.
        gae_lambda: lambda of generalised advantage estimation.
        length: L, which divides T.
    """
    sequences = _sequences(rollout, model)
    memories = network.unroll(sequences)
    advantage, returns = gae(
        reward,
        rollout.value,
        rollout.last_value,
        rollout.terminated,
        rollout.truncated,
        _final_value(rollout, model, memories),
        gamma=gamma,
        gae_lambda=gae_lambda,
        valid=rollout.valid,
    )
    action = model.head.encode(merge_axes(rollout.action))
    action = action.reshape(*rollout.reward.shape, -1)
    columns = action, rollout.log_prob, rollout.value, advantage, returns
    before = np.concatenate([sequences.memory[None], memories[length - 1 : -1 : length]])
    pieces = type(sequences)(
        _cut(sequences.vector, length),
        _cut(sequences.begins, length),
        before.reshape(-1, before.shape[2]),
        _cut(sequences.valid, length),
    )
    batch = SequenceBatch(pieces, tuple(_cut(column, length) for column in columns))
    return _without_empty(batch)


def _sequences(rollout: Rollout, model: ActorCriticModel) -> Sequences:
    """Take the whole rollout as B pieces of T steps."""
    from rookery.policy.recurrent_network import Sequences

    assert rollout.memory is not None
    vector = model.encode(merge_axes(rollout.obs)).vector
    begins = np.zeros_like(rollout.done)
    begins[1:] = rollout.done[:-1]
    shape = rollout.reward.shape
    return Sequences(vector.reshape(*shape, -1), begins, rollout.memory, rollout.valid)


def _final_value(rollout: Rollout, model: ActorCriticModel, memories: Floats) -> Floats:
    """Value of true final observations after truncations, with what was remembered there."""
    t, b = rollout.final_index.T
    cut = rollout.truncated[t, b] & ~rollout.terminated[t, b]
    final_value = np.zeros_like(rollout.final_value)
    if cut.any():
        t, b = t[cut], b[cut]
        parts = model.layout.views(model.parameters)
        vector = model.encode(take(rollout.final_obs, cut)).vector
        final_value[t, b] = critic_value(parts, gru(parts, vector, memories[t, b]))
    return final_value


def _cut(column: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Turn ``[T, B, ...]`` into pieces ``[L, T / L * B, ...]``."""
    num_steps, *rest = column.shape
    pieces = column.reshape(num_steps // length, length, *rest).swapaxes(0, 1)
    return pieces.reshape(length, -1, *rest[1:])


def _without_empty(batch: SequenceBatch) -> SequenceBatch:
    """Leave out pieces of which no step is valid: they cannot fill a minibatch."""
    vector, begins, memory, valid = batch.sequences
    some = np.flatnonzero(valid.any(axis=0))
    if len(some) == len(memory):
        return batch
    kept = type(batch.sequences)(vector[:, some], begins[:, some], memory[some], valid[:, some])
    return SequenceBatch(kept, tuple(column[:, some] for column in batch.columns))
