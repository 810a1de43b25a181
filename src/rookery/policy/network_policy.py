"""The base class of policies with a network: masks, draws and memory, without torch."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, made_finite
from rookery.policy.actions import ActionLayout, action_masks, has_action_mask
from rookery.policy.base import Policy, PolicyStep, stream
from rookery.policy.numpy.draws import Draws
from rookery.policy.weights import Weights

Floats: TypeAlias = npt.NDArray[np.float32]


class NetworkPolicy(Policy):
    """A policy that draws actions from the outputs of a network.

    If observations are a Dict with an ``action_mask``, illegal actions are never drawn; see
    `rookery.policy.actions.has_action_mask`.

    Args:
        model: the weights.
        observation_space: observation space of one env.
        layout: layout of the actions.
        memory_width: number of floats remembered per env; 0 without a memory.
        rng: generator of the drawn actions.

    Attributes:
        model: the weights, which a learner changes in place.
        layout: layout of the actions.
        rng: generator of the drawn actions.
        has_action_mask: whether observations contain an action mask.
    """

    def __init__(
        self,
        model: Weights,
        observation_space: spaces.Space[Any],
        layout: ActionLayout,
        memory_width: int,
        rng: np.random.Generator,
    ) -> None:
        self.model: Any = model
        self.observation_space = observation_space
        self.layout = layout
        self._draws = Draws(layout)
        self.memory_width = memory_width
        self.is_recurrent = memory_width > 0
        self.rng = rng
        self.has_action_mask = has_action_mask(observation_space, layout)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        outputs, value, memory = self._predict(obs)
        if memory is not None and not np.isfinite(memory).all():
            # A NaN in the memory would spoil the rest of the episode. Learners replace values
            # that are not finite in the same way.
            outputs, value, memory = self._predict(made_finite(obs))
            memory = made_finite(memory)
        self.memory = memory
        outputs = self._masked(outputs, obs)
        rows = self._choose(outputs, deterministic)
        log_prob = self._draws.log_prob(outputs, self._log_std(), rows)
        return PolicyStep(self.layout.pack(rows), log_prob, value)

    def value(self, obs: Tree) -> Floats:
        """Return the value of every env's observation, float32 ``[B]``; keep the memory."""
        return self._predict(obs)[1]

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        if self.is_recurrent:
            memory = self._memory_of(len(env_ids))
            self.memory = np.where(env_ids[:, None], np.float32(0), memory)

    def to_env(self, action: npt.NDArray[Any]) -> Any:
        return self.layout.fit(action)

    def use_stream(self, index: int) -> None:
        self.rng = stream(self.rng, index)
        if index:  # the noise belongs to the copy that drew it
            self.noise_state = None

    @abstractmethod
    def _predict(self, obs: Tree) -> tuple[Floats, Floats, Floats | None]:
        """Return outputs ``[B, num_outputs]``, values ``[B]`` and the next memory."""

    @abstractmethod
    def _log_std(self) -> Floats:
        """Return the log standard deviations, float32 ``[num_deviations]``."""

    def _choose(self, outputs: Floats, deterministic: bool) -> npt.NDArray[Any]:
        if deterministic:
            return self._draws.mode(outputs, self._log_std())
        if self.layout.num_latent:
            rows, self.noise_state = self._draws.explore(
                outputs, self._log_std(), self.noise_state, self.rng
            )
            return rows
        return self._draws.sample(outputs, self._log_std(), self.rng)

    def _masked(self, outputs: Floats, obs: Tree) -> Floats:
        """Give the actions that the observations' mask forbids a probability of zero."""
        return self._draws.masked(outputs, action_masks(obs)) if self.has_action_mask else outputs

    def _memory_of(self, num_envs: int) -> Floats:
        """Return the current memory, or zeros if it is missing or has another number of envs."""
        if self.memory is not None and len(self.memory) == num_envs:
            return self.memory
        return np.zeros((num_envs, self.memory_width), np.float32)
