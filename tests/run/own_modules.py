"""Modules of a user's own, apart from all that takes workers long to import."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def features(observation_space: Any) -> nn.Module:
    """An encoder: the sine of everything."""

    class Sine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(observation_space.shape[0], 7)

        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.sin(self.linear(obs))

    return Sine()


class Whole(nn.Module):
    """A network for the whole: one shared layer, two heads."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.shared = nn.Linear(observation_space.shape[0], 16)
        self.actor = nn.Linear(16, int(action_space.n))
        self.critic = nn.Linear(16, 1)

    def forward(self, obs: torch.Tensor) -> Any:
        hidden = torch.tanh(self.shared(obs))
        return self.actor(hidden), self.critic(hidden)[:, 0]
