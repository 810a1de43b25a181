"""An actor that remembers: a gated recurrent unit that acts in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.base import Policy, PolicyStep
from rookery.policy.model import ActorCriticModel
from rookery.rollout.tree import Tree

Floats: TypeAlias = npt.NDArray[np.float32]


class RecurrentPolicy(Policy):
    """Acts on what it sees and on what it remembers of each env's episode.

    Attributes:
        model: the weights, written by a learner.
        memory: float32 ``[B, H]``, after the last `act`; zeros where an episode begins.
    """

    is_recurrent = True

    def __init__(self, model: ActorCriticModel, seed: int = 0) -> None:
        self.model = model
        self.rng = np.random.default_rng(seed)
        self.memory: Floats | None = None
        self._views = model.layout.views(model.parameters)
        self._log_std = self._views.get("log_std", np.empty(0, np.float32))

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        self.memory = self._remember(obs)
        outputs = self.memory @ self._views["actor.weight"] + self._views["actor.bias"]
        head = self.model.head
        if deterministic:
            action = head.mode(outputs)
        else:
            action = head.sample(outputs, self._log_std, self.rng)
        log_prob = head.evaluate(outputs, self._log_std, head.encode(action)).log_prob
        return PolicyStep(action, log_prob, self._value(self.memory))

    def value(self, obs: Tree) -> Floats:
        """Value of what comes next in every env, float32 ``[B]``; the memory stays as it is."""
        return self._value(self._remember(obs))

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        if self.memory is None or len(self.memory) != len(env_ids):
            self.memory = np.zeros((len(env_ids), self.model.spec.memory_size), np.float32)
        self.memory = np.where(env_ids[:, None], np.float32(0), self.memory)

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.model.head.to_env(action)

    def _remember(self, obs: Tree) -> Floats:
        vector = self.model.encode(obs).vector
        memory = self.memory
        if memory is None or len(memory) != len(vector):
            memory = np.zeros((len(vector), self.model.spec.memory_size), np.float32)
        return gru(self._views, vector, memory)

    def _value(self, memory: Floats) -> Floats:
        value = memory @ self._views["critic.weight"][:, 0] + self._views["critic.bias"]
        return np.asarray(value, np.float32)


def gru(parts: dict[str, Any], x: Floats, memory: Floats) -> Floats:
    """Advance a gated recurrent unit by one step: Cho et al. (2014), equations 5 to 8.

    The reset gate is applied after the product with the memory, as cuDNN and torch do.

    Args:
        parts: parameters by name, see `recurrent_layout`.
        x: float32 ``[B, D]``.
        memory: float32 ``[B, H]``.

    Returns:
        The memory afterwards, float32 ``[B, H]``.
    """
    from_input = x @ parts["gru.input.weight"] + parts["gru.input.bias"]
    from_memory = memory @ parts["gru.memory.weight"] + parts["gru.memory.bias"]
    size = memory.shape[1]
    gates = _sigmoid(from_input[:, : 2 * size] + from_memory[:, : 2 * size])
    reset, update = gates[:, :size], gates[:, size:]
    candidate = np.tanh(from_input[:, 2 * size :] + reset * from_memory[:, 2 * size :])
    return np.asarray(update * memory + (1.0 - update) * candidate, np.float32)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1.0))
