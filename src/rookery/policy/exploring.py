"""Policies of learners from replay, which explore around the best known action.

The settings of exploration are in the model's ``exploration``, so workers receive them together
with the weights. Nothing here needs torch.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, num_rows
from rookery.policy.actions import ActionLayout, action_masks
from rookery.policy.base import NoiseState, Policy, PolicyStep, SplitPolicy
from rookery.policy.network_policy import NetworkPolicy


class ExploringPolicy(Policy):
    """Acts as another policy does, and explores.

    Log probabilities and values are NaN: learners from replay read neither.

    Args:
        inner: decides; its most probable actions are the best known.

    Attributes:
        model: the weights, those of ``inner``.
        observation_space: of one env.
        layout: of the actions.
        has_action_mask: whether observations tell which actions are legal.
    """

    model: Any

    def __init__(self, inner: NetworkPolicy) -> None:
        self.model = inner.model
        self.observation_space = inner.observation_space
        self.layout: ActionLayout = inner.layout
        self.has_action_mask = inner.has_action_mask
        self._inner = inner

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self._inner, self.version)

    @property
    def rng(self) -> np.random.Generator:
        """Draws the actions."""
        return self._inner.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self._inner.rng = rng

    @property
    def exploration(self) -> npt.NDArray[np.float64]:
        """How to explore, float64 ``[E]``."""
        exploration: npt.NDArray[np.float64] = self.model.exploration
        return exploration

    @property
    def noise_state(self) -> NoiseState | None:
        """What is held of the noise; see `Policy`."""
        return self._inner.noise_state

    @noise_state.setter
    def noise_state(self, held: NoiseState | None) -> None:
        self._inner.noise_state = held

    def use_stream(self, index: int) -> None:
        self._inner.use_stream(index)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        if deterministic:
            action = self._drawn(obs, True)
        else:
            action = self._explore(obs)
        unknown = np.full(len(action), np.nan, np.float32)
        return PolicyStep(action, unknown, unknown)

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        return np.full(num_rows(obs), np.nan, np.float32)

    def to_env(self, action: npt.NDArray[Any]) -> Any:
        return self._inner.to_env(action)

    @abstractmethod
    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        """Draw actions, ``[B, *action]``."""

    def _drawn(self, obs: Tree, deterministic: bool) -> npt.NDArray[Any]:
        """What the inner policy decides."""
        if isinstance(self._inner, SplitPolicy):
            return self._inner.sample(obs, deterministic)
        return self._inner.act(obs, deterministic).action


def _rebuilt(kind: type[ExploringPolicy], inner: NetworkPolicy, version: int) -> ExploringPolicy:
    policy = kind(inner)
    policy.version = version
    return policy


class EpsilonGreedyPolicy(ExploringPolicy):
    """Takes any legal action with probability `epsilon`, else that of the greatest value."""

    @property
    def epsilon(self) -> float:
        """Share of random actions."""
        return float(self.exploration[0])

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self.exploration[0] = value

    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        rows = self.layout.unpack(self._drawn(obs, True))
        at_random = self.rng.random(len(rows)) < self.epsilon
        if not self.has_action_mask:
            drawn = self.rng.integers(self.layout.num_choices, size=len(rows))
        else:
            mask = action_masks(obs)
            # Of several uniform numbers, each is as likely as any other to be the greatest.
            drawn = np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)
        return self.layout.pack(np.where(at_random[:, None], drawn[:, None], rows))


# Of Ornstein-Uhlenbeck noise: how strongly it is drawn back to zero, and the time of a step.
_THETA, _DT = 0.15, 0.01


class SquashedPolicy(ExploringPolicy):
    """Draws actions around the squashed mean, or uniformly as long as nothing was learned."""

    @property
    def is_uniform(self) -> bool:
        """Whether actions are drawn uniformly."""
        return bool(self.exploration[0])

    @is_uniform.setter
    def is_uniform(self, value: bool) -> None:
        self.exploration[0] = float(value)

    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        if not self.is_uniform:
            return self._around_mean(obs)
        rows = self.rng.uniform(-1.0, 1.0, (num_rows(obs), self.layout.num_columns))
        return self.layout.pack(rows.astype(np.float32))

    @abstractmethod
    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        """Draw actions, ``[B, *action]``."""


class SquashedGaussianPolicy(SquashedPolicy):
    """Draws from squashed normals, whose deviations depend on the observation too: SAC."""

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        return self._drawn(obs, False)


class NoisyPolicy(SquashedPolicy):
    """Adds normal noise to the squashed mean: TD3."""

    @property
    def noise(self) -> float:
        """Deviation of the noise, where actions lie between -1 and 1."""
        return float(self.exploration[1])

    @noise.setter
    def noise(self, value: float) -> None:
        self.exploration[1] = value

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        action = self._drawn(obs, True)
        return np.asarray(np.clip(action + self._next_noise(action), -1.0, 1.0))

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Draw what is added to actions ``[B, *action]``."""
        return np.float32(self.noise) * self._draw(action)

    def _draw(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Standard normal numbers, as many as actions have."""
        return self.rng.standard_normal(action.shape, np.float32)


class OrnsteinUhlenbeckPolicy(NoisyPolicy):
    """Adds noise that wanders from step to step, as Lillicrap et al. (2016) did for DDPG.

    ``x' = x - theta x dt + noise sqrt(dt) n``, with n normal, for every env apart; zero where an
    episode begins. So `noise` is not its deviation, which grows to ``noise / sqrt(2 theta)`` within
    some hundreds of steps.
    """

    follows_episodes = True

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        if self.noise_state is not None and len(self.noise_state.values) == len(env_ids):
            values, age = self.noise_state
            at = env_ids.reshape(-1, *[1] * (values.ndim - 1))
            self.noise_state = NoiseState(np.where(at, np.float32(0), values), age)

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        held = self.noise_state
        if held is None or held.values.shape != action.shape:
            held = NoiseState(np.zeros(action.shape, np.float32), 0)
        drawn = np.float32(self.noise * _DT**0.5) * self._draw(action)
        values = held.values * np.float32(1.0 - _THETA * _DT) + drawn
        self.noise_state = NoiseState(values, held.age + 1)
        return values
