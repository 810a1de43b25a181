"""An actor-critic network as data: what it reads, what it gives, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import ConfigError, SpaceError
from rookery.policy.encoder import Features, ObservationEncoder
from rookery.policy.heads import ActionHead, action_head
from rookery.policy.mlp import ACTIVATIONS
from rookery.policy.parameters import ParameterLayout, actor_critic_layout, recurrent_layout
from rookery.rollout.normalize import RunningMoments
from rookery.rollout.tree import Tree

OBS_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """Everything that fixes a network's shape. Plain data; it can be sent to another process.

    Attributes:
        observation_space: of one env.
        action_space: of one env.
        hidden_sizes: widths of the towers' layers; None is (64, 64), or none behind images.
        activation: "tanh" or "relu", in the towers.
        normalize_obs: whether observations are standardised by running statistics.
        memory_size: H of gated recurrent units in place of the towers; 0 remembers nothing.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    hidden_sizes: tuple[int, ...] | None = None
    activation: str = "tanh"
    normalize_obs: bool = False
    memory_size: int = 0


class ActorCriticModel:
    """The state that acting and learning share, free of torch.

    Attributes:
        spec: what it was built from.
        encoder: observations -> features.
        head: network outputs -> actions.
        layout: names and places of the parameters.
        parameters: float32 ``[layout.size]``; written in place by a learner.
        normalizer: statistics of the vector features, or None.
    """

    def __init__(
        self, spec: PolicySpec, parameters: npt.NDArray[np.float32] | None = None, seed: int = 0
    ) -> None:
        if spec.activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation {spec.activation!r} is not known; choose from {', '.join(ACTIVATIONS)}"
            )
        self.spec = spec
        self.encoder = ObservationEncoder(spec.observation_space)
        self.head = action_head(spec.action_space)
        self.layout = _layout(spec, self.encoder, self.head)
        if parameters is None:
            parameters = self.layout.initial(np.random.default_rng(seed))
        self.parameters = parameters
        scaled = self.encoder.num_scaled
        self.normalizer = RunningMoments((scaled,)) if spec.normalize_obs and scaled else None

    def encode(self, obs: Tree) -> Features:
        """Encode and normalise a batch of observations ``[N, *obs]``."""
        features = self.encoder.encode(obs)
        if self.normalizer is None:
            return features
        scaled = self.encoder.num_scaled
        vector = self.normalizer.normalize(features.vector[:, :scaled], OBS_LIMIT)
        if scaled < self.encoder.size:
            vector = np.concatenate([vector, features.vector[:, scaled:]], axis=1)
        return Features(vector, features.images)

    def observe(self, obs: Tree) -> None:
        """Merge a batch of observations ``[N, *obs]`` into the normalisation statistics."""
        if self.normalizer is not None:
            vector = self.encoder.encode(obs).vector
            self.normalizer.update(vector[:, : self.encoder.num_scaled])

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
        views = self.layout.views(self.parameters)
        return {
            "parameters": {name: view.copy() for name, view in views.items()},
            "normalizer": self.normalizer.state_dict() if self.normalizer else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in place."""
        for name, view in self.layout.views(self.parameters).items():
            view[...] = state["parameters"][name]
        if self.normalizer:
            self.normalizer.load_state_dict(state["normalizer"])


def _layout(spec: PolicySpec, encoder: ObservationEncoder, head: ActionHead) -> ParameterLayout:
    images = encoder.image_shapes
    outputs = head.num_outputs, head.has_log_std
    if not spec.memory_size:
        return actor_critic_layout(
            encoder.size, images, _hidden_sizes(spec, bool(images)), *outputs
        )
    if images:
        raise SpaceError("recurrent policies read vectors; observation_space holds images")
    return recurrent_layout(encoder.size, spec.memory_size, *outputs)


def _hidden_sizes(spec: PolicySpec, has_images: bool) -> tuple[int, ...]:
    if spec.hidden_sizes is not None:
        return tuple(spec.hidden_sizes)
    return () if has_images else (64, 64)


def rebuilt(kind: Any, model: Any, rng: np.random.Generator, version: int) -> Any:
    """Make a policy of what it was pickled as."""
    policy: Any = kind(model)
    policy.rng, policy.version = rng, version
    return policy
