"""An actor that remembers: gated recurrent units that act in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.base import Policy, PolicyStep
from rookery.policy.old_model import ActorCriticModel
from rookery.rollout.tree import Tree

Floats: TypeAlias = npt.NDArray[np.float32]


class RecurrentPolicy(Policy):
    """Acts on what it sees and on what it remembers of each env's episode.

    Actor and critic remember apart, as they share no weights either: through shared ones the
    errors of large values would drown what the actor has to learn.

    Attributes:
        model: the weights, written by a learner.
        memory: float32 ``[B, 2 H]``, the actor's and the critic's after the last `act`; zeros
            where an episode begins.
    """

    is_recurrent = True

    def __init__(self, model: ActorCriticModel, seed: int = 0) -> None:
        self.model: ActorCriticModel = model
        self.rng = np.random.default_rng(seed)
        self.memory: Floats | None = None
        self._views = model.layout.views(model.parameters)
        self._log_std = self._views.get("log_std", np.empty(0, np.float32))

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        self.memory = self._remember(obs)
        actors = self.memory[:, : self.model.spec.memory_size]
        outputs = actors @ self._views["actor.weight"] + self._views["actor.bias"]
        head = self.model.head
        if deterministic:
            action = head.mode(outputs)
        else:
            action = head.sample(outputs, self._log_std, self.rng)
        log_prob = head.evaluate(outputs, self._log_std, head.encode(action)).log_prob
        return PolicyStep(action, log_prob, critic_value(self._views, self.memory))

    def value(self, obs: Tree) -> Floats:
        """Value of what comes next in every env, float32 ``[B]``; the memory stays as it is."""
        return critic_value(self._views, self._remember(obs))

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        memory = self._memory(len(env_ids))
        self.memory = np.where(env_ids[:, None], np.float32(0), memory)

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.model.head.to_env(action)

    def _remember(self, obs: Tree) -> Floats:
        vector = self.model.encode(obs).vector
        return gru(self._views, vector, self._memory(len(vector)))

    def _memory(self, num_envs: int) -> Floats:
        """Return the present memory; an empty one where there is none, or one of other envs."""
        if self.memory is not None and len(self.memory) == num_envs:
            return self.memory
        return np.zeros((num_envs, 2 * self.model.spec.memory_size), np.float32)


def critic_value(parts: dict[str, Any], memory: Floats) -> Floats:
    """Read the critic's value out of memories, float32 ``[B, 2 H]``: float32 ``[B]``."""
    weight = parts["critic.weight"][:, 0]
    return np.asarray(memory[:, len(weight) :] @ weight + parts["critic.bias"], np.float32)


def gru(parts: dict[str, Any], x: Floats, memory: Floats) -> Floats:
    """Advance both gated recurrent units by one step: Cho et al. (2014), equations 5 to 8.

    The reset gate is applied after the product with the memory, as cuDNN and torch do.

    Args:
        parts: parameters by name, see `recurrent_layout`.
        x: float32 ``[B, D]``, what both read.
        memory: float32 ``[B, 2 H]``.

    Returns:
        The memory afterwards, float32 ``[B, 2 H]``.
    """
    size = memory.shape[1] // 2
    before = memory.reshape(-1, 2, size).swapaxes(0, 1)
    from_input = x @ parts["gru.input.weight"] + parts["gru.input.bias"]
    from_memory = before @ parts["gru.memory.weight"] + parts["gru.memory.bias"]
    gates = _sigmoid(from_input[..., : 2 * size] + from_memory[..., : 2 * size])
    reset, update = gates[..., :size], gates[..., size:]
    candidate = np.tanh(from_input[..., 2 * size :] + reset * from_memory[..., 2 * size :])
    after = update * before + (1.0 - update) * candidate
    return np.asarray(after.swapaxes(0, 1).reshape(memory.shape), np.float32)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1.0))
