"""Made-up experience for learners from replay, and what their tests share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rookery import Rollout
from rookery.common.trees import tree_map

T, B = 4, 3


def made_up_rollout(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], seed: int = 0
) -> Rollout:
    """T steps of B envs, with terminations; actions as a policy draws them."""
    rng = np.random.default_rng(seed)
    observation_space.seed(seed)
    rows = [[observation_space.sample() for _ in range(B)] for _ in range(T + 1)]
    obs = tree_map(lambda *a: np.array(a).reshape(T + 1, B, *np.shape(a[0])),
                   *(one for row in rows for one in row))  # fmt: skip
    if isinstance(action_space, spaces.Discrete):
        action = rng.integers(action_space.n, size=(T, B)) + action_space.start
    else:
        action = rng.uniform(-1, 1, (T, B, *action_space.shape)).astype(np.float32)
    rollout = Rollout.allocate(T, tree_map(lambda a: a[0], obs), action[0])
    rollout.obs = tree_map(lambda a: a[:-1], obs)
    rollout.last_obs = tree_map(lambda a: a[-1], obs)
    rollout.action[:] = action
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.2
    return rollout


def disturb(flat: Any, seed: int = 0, scale: float = 0.3) -> None:
    """Move flat parameters at random: initial outputs are nearly zero, which hides mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        flat.tensor.add_(scale * torch.randn(flat.size, generator=generator))


def numbers(learner: Any) -> Any:
    """Copy the state of a learner's noise, to draw the same again."""
    state = learner._noise.get_state()
    return torch.Generator().set_state(state)


def moved(optimizer: Any) -> list[Any]:
    """Record the gradients that an optimizer receives, and do not update parameters."""
    seen: list[Any] = []
    optimizer.step = lambda gradient, rate: seen.append(gradient.clone())
    return seen
