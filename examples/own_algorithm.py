"""A custom algorithm in one file: REINFORCE with a baseline (Williams 1992).

python examples/own_algorithm.py --total-steps 60000
python examples/own_algorithm.py --total-steps 60000 --collector workers
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor, nn

import rookery
from rookery.rollout import gae


class Network(nn.Module):
    """Logits and values."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        sizes = observation_space.shape[0], 64, int(action_space.n)
        self.actor = nn.Sequential(nn.Linear(*sizes[:2]), nn.Tanh(), nn.Linear(*sizes[1:]))
        self.critic = nn.Sequential(nn.Linear(*sizes[:2]), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Observations ``[N, D]`` to logits ``[N, A]`` and values ``[N]``."""
        return self.actor(obs), self.critic(obs).squeeze(1)


class Reinforce(rookery.Algorithm):
    """Any object with these methods is an algorithm; deriving from `rookery.Algorithm` is handy."""

    name = "reinforce"

    def __init__(self, num_steps: int = 64, learning_rate: float = 2e-3, gamma: float = 0.99):
        self.num_steps, self.learning_rate, self.gamma = num_steps, learning_rate, gamma

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Any:
        """Build who acts; its module is what is learned."""
        torch.manual_seed(seed)
        module = Network(observation_space, action_space)
        return rookery.TorchPolicy(module, observation_space, action_space, seed=seed)

    def start(self, policy: Any, num_envs: int, seed: int) -> None:
        """Prepare to learn the weights of ``policy``."""
        self.network = policy.module
        self.optimizer = torch.optim.Adam(self.network.parameters(), self.learning_rate)

    def update(self, rollout: rookery.Rollout, progress: float) -> dict[str, float]:
        """Take one gradient step on a rollout ``[T, B]``."""
        advantage, returns = gae(
            rollout.reward,
            rollout.value,
            rollout.last_value,
            rollout.terminated,
            rollout.truncated,
            rollout.final_value,
            gamma=self.gamma,
            gae_lambda=1.0,
            valid=rollout.valid,
        )
        batch = rollout.torch()
        logits, value, _ = self.network(batch.obs.flatten(0, 1))
        log_prob = torch.log_softmax(logits, dim=1).gather(1, batch.action.reshape(-1, 1))[:, 0]
        weight = torch.from_numpy(advantage).reshape(-1)
        weight = (weight - weight.mean()) / (weight.std() + 1e-8)
        error = value - torch.from_numpy(returns).reshape(-1)
        learned = batch.valid.reshape(-1)
        loss = (-weight * log_prob + 0.5 * error.square())[learned].mean()
        self.optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
        self.optimizer.param_groups[0]["lr"] = self.learning_rate * (1.0 - progress)
        self.optimizer.step()
        return {"policy_loss": loss.item(), "gradient_norm": norm.item()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed run needs, besides the policy."""
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.optimizer.load_state_dict(state["optimizer"])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=60_000)
    parser.add_argument("--collector", choices=["caller", "workers"], default="caller")
    options = parser.parse_args()
    result = rookery.train(
        "CartPole-v1",
        Reinforce(),
        total_steps=options.total_steps,
        num_envs=16,
        collector=options.collector,
        run_dir="runs/own-algorithm",
        overwrite=True,
    )
    print(f"mean return {result.eval_return_mean:.1f}")
    again = rookery.evaluate("runs/own-algorithm", episodes=20, algo=Reinforce())
    print(f"evaluated again: {again.eval_return_mean:.1f}")


if __name__ == "__main__":
    main()
