"""Custom networks: an encoder for one part of the observation, or a module for the whole.

python examples/own_network.py --total-steps 30000
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

import rookery


class Attention(nn.Module):
    """An encoder: from observations ``[N, D]`` to features ``[N, F]``."""

    def __init__(self, observation_space: Any, width: int = 32) -> None:
        super().__init__()
        size = observation_space.shape[0]
        self.names = nn.Parameter(torch.randn(size, width) / width**0.5)
        self.query = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, obs: Tensor) -> Tensor:
        """Let every component look at all the others."""
        tokens = obs[..., None] * self.names + self.names
        weights = torch.softmax(self.query(tokens) @ tokens.transpose(1, 2) / 4.0, dim=2)
        return torch.tanh(self.out(weights @ tokens)).mean(dim=1)


class SharedTrunk(nn.Module):
    """A network for the whole: from observations to outputs of the actor, and values."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(observation_space.shape[0], 64), nn.LayerNorm(64), nn.Tanh()
        )
        self.actor = nn.Linear(64, int(action_space.n))
        self.critic = nn.Linear(64, 1)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``[N, A]`` and values ``[N]``."""
        hidden = self.trunk(obs)
        return self.actor(hidden), self.critic(hidden).squeeze(1)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=30_000)
    parser.add_argument("--eval-episodes", type=int, default=20)
    options = parser.parse_args()

    config = rookery.PPOConfig(num_steps=64, num_epochs=10, gamma=0.98, gae_lambda=0.8)
    settings: dict[str, Any] = {
        "total_steps": options.total_steps,
        "eval_episodes": options.eval_episodes,
        "overwrite": True,
    }
    first = rookery.train(
        "CartPole-v1", config, encoder=Attention, run_dir="runs/own-encoder", **settings
    )
    print(f"own encoder: mean return {first.eval_return_mean:.1f}")
    second = rookery.train(
        "CartPole-v1", config, network=SharedTrunk, run_dir="runs/own-network", **settings
    )
    print(f"own network: mean return {second.eval_return_mean:.1f}")

    agent = rookery.load("runs/own-network", network=SharedTrunk)
    obs, _ = gym.make("CartPole-v1").reset(seed=0)
    print(f"loaded: acts {agent.act(obs)}")

    # The same module without training: any torch code may change its weights.
    with rookery.make_vec("CartPole-v1", 4, backend="serial") as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        module = SharedTrunk(*spaces)
        collector = rookery.SyncCollector(venv, rookery.TorchPolicy(module, *spaces), num_steps=8)
        before = collector.collect().policy_version[0]
        torch.optim.SGD(module.parameters(), 0.1).step()  # moves nothing without gradients
        with torch.no_grad():
            module.actor.bias += 0.1
        print(f"version {before}, then {collector.collect().policy_version[0]}")


if __name__ == "__main__":
    main()
