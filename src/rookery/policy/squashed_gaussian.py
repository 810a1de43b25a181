"""The actor of SAC: normals squashed by tanh, their deviations depending on the observation."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import SpaceError
from rookery.policy.base import Policy, PolicyStep
from rookery.policy.encoder import ObservationEncoder
from rookery.policy.old_model import OBS_LIMIT
from rookery.policy.stack import MLPStack, StackPass
from rookery.rollout.normalize import RunningMoments
from rookery.rollout.tree import Tree

Floats: TypeAlias = npt.NDArray[np.float32]

LOG_STD_RANGE = (-5.0, 2.0)
_LOG_SQRT_2_PI = 0.5 * float(np.log(2.0 * np.pi))
_LOG_2 = float(np.log(2.0))


class SquashedSample(NamedTuple):
    """Actions drawn so that gradients flow through them: ``a = tanh(mean + std * noise)``.

    Attributes:
        action: float32 ``[N, A]``, within (-1, 1).
        log_prob: float32 ``[N]``.
        scaled_noise: float32 ``[N, A]``, ``std * noise``.
        log_std_is_free: bool ``[N, A]``, where the deviation is not held at its bounds.
        done: the network's pass.
    """

    action: Floats
    log_prob: Floats
    scaled_noise: Floats
    log_std_is_free: npt.NDArray[np.bool_]
    done: StackPass

    def d_outputs(self, d_action: Floats, d_log_prob: Floats) -> Floats:
        """Turn gradients by ``action`` and ``log_prob`` into that by the network's outputs.

        With ``u = mean + std * noise``: ``da/du = 1 - a^2``, ``d log_prob / du = 2 a``, and
        ``log_std`` moves ``u`` by ``std * noise`` and ``log_prob`` by -1 more.

        Args:
            d_action: float32 ``[N, A]``.
            d_log_prob: float32 ``[N]``.

        Returns:
            float32 ``[1, N, 2 A]``.
        """
        d_pre = d_action * (1.0 - self.action**2) + 2.0 * self.action * d_log_prob[:, None]
        d_log_std = (d_pre * self.scaled_noise - d_log_prob[:, None]) * self.log_std_is_free
        return np.concatenate([d_pre, d_log_std], axis=1, dtype=np.float32)[None]


class SquashedGaussianModel:
    """Weights of the actor, and how it reads observations.

    Attributes:
        encoder: observations -> one vector.
        actor: the network; its outputs are means and log deviations.
        num_actions: A, how many numbers an action has.
        hidden_sizes: widths of the hidden layers.
        parameters: float32 ``[size]``, those of ``actor``.
        normalizer: statistics of the vector, or None.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        hidden_sizes: tuple[int, ...] | None,
        activation: str,
        normalize_obs: bool,
        seed: int,
    ) -> None:
        _require_bounded(action_space)
        self.encoder = ObservationEncoder(observation_space)
        if self.encoder.image_shapes:
            raise SpaceError("SAC reads vectors; observation_space holds images")
        self.num_actions = int(np.prod(action_space.shape or ()))
        self.hidden_sizes = (64, 64) if hidden_sizes is None else hidden_sizes
        sizes = (self.encoder.size, *self.hidden_sizes, 2 * self.num_actions)
        self.actor = MLPStack(1, sizes, activation, seed, output_gain=0.01)
        self.parameters = self.actor.parameters
        scaled = self.encoder.num_scaled
        self.normalizer = RunningMoments((scaled,)) if normalize_obs and scaled else None

    def encode(self, obs: Tree) -> Floats:
        """Encode and normalise a batch of observations ``[N, *obs]``: float32 ``[N, D]``."""
        vector = self.encoder.encode(obs).vector
        if self.normalizer is None:
            return vector
        scaled = self.encoder.num_scaled
        left = self.normalizer.normalize(vector[:, :scaled], OBS_LIMIT)
        return np.concatenate([left, vector[:, scaled:]], axis=1)

    def observe(self, obs: Tree) -> None:
        """Merge a batch of observations ``[N, *obs]`` into the normalisation statistics."""
        if self.normalizer is not None:
            vector = self.encoder.encode(obs).vector
            self.normalizer.update(vector[:, : self.encoder.num_scaled])

    def sample(self, vector: Floats, rng: np.random.Generator) -> SquashedSample:
        """Draw actions for encoded observations ``[N, D]``.

        The density is Haarnoja et al. (2018), equation 21, with
        ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))``, which loses no digits.
        """
        done = self.actor.forward(vector)
        mean, raw = np.split(done.outputs[0], 2, axis=1)
        log_std = np.clip(raw, *LOG_STD_RANGE)
        noise = rng.standard_normal(mean.shape, np.float32)
        scaled_noise = np.exp(log_std) * noise
        pre = mean + scaled_noise
        squash = 2.0 * (_LOG_2 - pre - np.logaddexp(np.float32(0), -2.0 * pre))
        log_prob = (-0.5 * noise**2 - log_std - _LOG_SQRT_2_PI - squash).sum(axis=1)
        is_free = log_std == raw
        return SquashedSample(np.tanh(pre), log_prob, scaled_noise, is_free, done)

    def extras(self) -> npt.NDArray[np.float64]:
        """Count, mean and squares of the statistics."""
        if self.normalizer is None:
            return np.empty(0)
        state = self.normalizer.state_dict()
        return np.concatenate([[state["count"]], state["mean"], state["squares"]])

    def set_extras(self, extras: npt.NDArray[np.float64]) -> None:
        """Take over what `extras` gave."""
        if self.normalizer is not None:
            mean, squares = np.split(extras[1:], 2)
            self.normalizer.load_state_dict({"count": extras[0], "mean": mean, "squares": squares})

    def state_dict(self) -> dict[str, Any]:
        """Parameters by name and statistics, as plain data."""
        views = self.actor.layout.views(self.parameters)
        return {
            "parameters": {name: view.copy() for name, view in views.items()},
            "normalizer": self.normalizer.state_dict() if self.normalizer else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in place."""
        for name, view in self.actor.layout.views(self.parameters).items():
            view[...] = state["parameters"][name]
        if self.normalizer:
            self.normalizer.load_state_dict(state["normalizer"])


class SquashedGaussianPolicy(Policy):
    """Acts by a `SquashedGaussianModel`; its most probable action is the squashed mean.

    Drawn actions lie within (-1, 1); `to_env` stretches them to the bounds. Log probabilities
    and values are NaN: learners from replay read neither.
    """

    def __init__(
        self, model: SquashedGaussianModel, action_space: spaces.Box, seed: int = 0
    ) -> None:
        self.model: SquashedGaussianModel = model
        stream = int(np.random.SeedSequence(seed).spawn(1)[0].generate_state(1)[0])
        self.rng = np.random.default_rng(stream)
        self._shape, self._dtype = action_space.shape, action_space.dtype
        self._low = action_space.low
        self._half = (action_space.high - action_space.low) / 2

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        vector = self.model.encode(obs)
        if deterministic:
            outputs = self.model.actor.forward(vector).outputs[0]
            action = np.tanh(outputs[:, : outputs.shape[1] // 2])
        else:
            action = self.model.sample(vector, self.rng).action
        unknown = np.full(len(action), np.nan, np.float32)
        return PolicyStep(action.reshape(-1, *self._shape), unknown, unknown)

    def to_env(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        stretched = self._low + (action + 1.0) * self._half
        return np.asarray(stretched).astype(self._dtype, copy=False)


def _require_bounded(space: spaces.Space[Any]) -> None:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise SpaceError(f"SAC acts in a Box of floats; action_space is {space}")
    if not space.is_bounded("both"):
        raise SpaceError(f"SAC needs finite bounds of its actions; action_space is {space}")
