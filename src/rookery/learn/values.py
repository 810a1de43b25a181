"""What learners of action values share: DQN and QR-DQN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium.spaces as spaces
import torch
from torch import Tensor

from rookery.errors import SpaceError
from rookery.learn.schedule import scheduled
from rookery.policy.encoders import observation_leaves
from rookery.policy.images import is_image

# With 64 64, runs on CartPole came to values beyond any return, and one in three stayed there.
HIDDEN_SIZES = (128, 128)


def best_action(values: Tensor, mask: Tensor | None) -> Tensor:
    """Choose the legal action of the greatest value: int64 ``[N, 1]``.

    Args:
        values: float32 ``[N, A]``.
        mask: bool ``[N, A]``, the legal ones; None allows all.
    """
    legal = values if mask is None else values.masked_fill(~mask, -torch.inf)
    return legal.argmax(1, keepdim=True)


def epsilon_at(config: Any, progress: float) -> float:
    """The share of random actions, which falls in the first part of the training."""
    explored = progress / max(config.exploration_fraction, 1e-9)
    return scheduled(config.initial_epsilon, config.final_epsilon, explored)


def count_actions(action_space: spaces.Space[Any]) -> int:
    """Count the actions to value.

    Raises:
        SpaceError: they are not a few to choose from.
    """
    if not isinstance(action_space, spaces.Discrete):
        kind = type(action_space).__name__
        raise SpaceError(f"action values need a Discrete action_space, not a {kind}")
    return int(action_space.n)


def width_of(config: Any, observation_space: spaces.Space[Any], encoder: Any) -> Sequence[int]:
    """Choose the hidden layers: as set, or 128 128, or none behind an encoder with its own."""
    if config.hidden_sizes is not None:
        return tuple(config.hidden_sizes)
    if encoder is not None:
        return ()
    has_images = any(is_image(leaf.space) for leaf in observation_leaves(observation_space))
    return () if has_images else HIDDEN_SIZES
