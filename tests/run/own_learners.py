"""Learners of a user, which other processes can import."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rookery.learn.off_policy.dqn import DQN
from rookery.learn.on_policy.ppo import PPO


class NoLoss(PPO):
    """Learns nothing: its loss is zero."""

    def loss(self, batch: Any) -> Any:
        found = super().loss(batch)
        return {**found, "loss": 0.0 * found["loss"], "mine": torch.tensor(3.0)}


class Scaled(PPO):
    """Another loss than the library's."""

    def loss(self, batch: Any) -> Any:
        found = super().loss(batch)
        return {**found, "loss": found["loss"] + found["value_loss"], "mine": 3.0}


class NoDQNLoss(DQN):
    """Learns nothing: its loss is zero."""

    def loss(self, batch: Any) -> Any:
        found = super().loss(batch)
        return found._replace(loss=0.0 * found.loss)


class Net(nn.Module):
    """Logits and values."""

    def __init__(self, *_: Any) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)[:, 0]


class OwnPolicy(Scaled):
    """Makes its policy by itself."""

    @staticmethod
    def make_policy(  # type: ignore[override]
        config: Any, observation_space: Any, action_space: Any, seed: int, **_: Any
    ) -> Any:
        return PPO.make_policy(config, observation_space, action_space, seed, network=Net)
