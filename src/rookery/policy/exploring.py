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
    """A policy that explores around the actions of another policy.

    Log probabilities and values are NaN, because learners from replay do not use them.

    Args:
        inner: the policy to explore around; its most probable actions are the best known ones.

    Attributes:
        model: the weights of ``inner``.
        observation_space: observation space of one env.
        layout: layout of the actions.
        has_action_mask: whether observations contain an action mask.
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
        """Generator of the drawn actions."""
        return self._inner.rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self._inner.rng = rng

    @property
    def exploration(self) -> npt.NDArray[np.float64]:
        """Settings of the exploration, float64 ``[E]``."""
        exploration: npt.NDArray[np.float64] = self.model.exploration
        return exploration

    @property
    def noise_state(self) -> NoiseState | None:
        """Noise that is kept between steps; see `Policy`."""
        return self._inner.noise_state

    @noise_state.setter
    def noise_state(self, noise: NoiseState | None) -> None:
        self._inner.noise_state = noise

    def use_stream(self, index: int) -> None:
        self._inner.use_stream(index)

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        if deterministic:
            action = self._inner_action(obs, True)
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
        """Draw actions ``[B, *action]``."""

    def _inner_action(self, obs: Tree, deterministic: bool) -> npt.NDArray[Any]:
        """Return the actions of the inner policy."""
        if isinstance(self._inner, SplitPolicy):
            return self._inner.sample(obs, deterministic)
        return self._inner.act(obs, deterministic).action


def _rebuilt(kind: type[ExploringPolicy], inner: NetworkPolicy, version: int) -> ExploringPolicy:
    policy = kind(inner)
    policy.version = version
    return policy


class EpsilonGreedyPolicy(ExploringPolicy):
    """Random legal actions with probability `epsilon`, otherwise the action of greatest value."""

    @property
    def epsilon(self) -> float:
        """Share of random actions."""
        return float(self.exploration[0])

    @epsilon.setter
    def epsilon(self, value: float) -> None:
        self.exploration[0] = value

    def _explore(self, obs: Tree) -> npt.NDArray[Any]:
        rows = self.layout.unpack(self._inner_action(obs, True))
        at_random = self.rng.random(len(rows)) < self.epsilon
        if not self.has_action_mask:
            drawn = self.rng.integers(self.layout.num_choices, size=len(rows))
        else:
            mask = action_masks(obs)
            # Each legal choice is equally likely to have the greatest uniform number.
            drawn = np.where(mask, self.rng.random(mask.shape), -1.0).argmax(axis=1)
        return self.layout.pack(np.where(at_random[:, None], drawn[:, None], rows))


# Ornstein-Uhlenbeck noise: strength of the pull towards zero, and duration of a step.
_THETA, _DT = 0.15, 0.01


class SquashedPolicy(ExploringPolicy):
    """Random actions around the squashed mean, or uniform actions before learning starts."""

    @property
    def is_uniform(self) -> bool:
        """True if actions are drawn uniformly."""
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
        """Draw actions ``[B, *action]``."""


class SquashedGaussianPolicy(SquashedPolicy):
    """Draws from SAC's squashed normals with observation-dependent standard deviations."""

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        return self._inner_action(obs, False)


class NoisyPolicy(SquashedPolicy):
    """TD3's policy, which adds normal noise to the squashed mean."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise; actions are between -1 and 1."""
        return float(self.exploration[1])

    @noise.setter
    def noise(self, value: float) -> None:
        self.exploration[1] = value

    def _around_mean(self, obs: Tree) -> npt.NDArray[Any]:
        action = self._inner_action(obs, True)
        return np.asarray(np.clip(action + self._next_noise(action), -1.0, 1.0))

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Draw the noise to add to actions ``[B, *action]``."""
        return np.float32(self.noise) * self._draw(action)

    def _draw(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Draw standard normal numbers with the shape of ``action``."""
        return self.rng.standard_normal(action.shape, np.float32)


class OrnsteinUhlenbeckPolicy(NoisyPolicy):
    """TD3's policy with Ornstein-Uhlenbeck noise (Lillicrap et al. 2016, for DDPG).

    ``x' = x - theta x dt + noise sqrt(dt) n`` with normal n, separately for every env. The noise x
    is zero at the start of an episode. Its standard deviation is not `noise`: it grows to
    ``noise / sqrt(2 theta)`` within some hundreds of steps.
    """

    follows_episodes = True

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        if self.noise_state is not None and len(self.noise_state.values) == len(env_ids):
            values, age = self.noise_state
            at = env_ids.reshape(-1, *[1] * (values.ndim - 1))
            self.noise_state = NoiseState(np.where(at, np.float32(0), values), age)

    def _next_noise(self, action: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        before = self.noise_state
        if before is None or before.values.shape != action.shape:
            before = NoiseState(np.zeros(action.shape, np.float32), 0)
        drawn = np.float32(self.noise * _DT**0.5) * self._draw(action)
        values = before.values * np.float32(1.0 - _THETA * _DT) + drawn
        self.noise_state = NoiseState(values, before.age + 1)
        return values
