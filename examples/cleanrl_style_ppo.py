"""PPO in one file, to be read from top to bottom and changed at will; only the envs are rookery's.

    python examples/cleanrl_style_ppo.py --total-steps 100000

The algorithm is that of Schulman et al. (2017), with the generalised advantages of Schulman et al.
(2016). Discrete actions, flat observations.

rookery's default is Gymnasium's next-step autoreset. When the episode of env i ends at step t:

    step t    returns the episode's true last observation, its reward, and terminated or truncated
    step t+1  ignores the action of env i, resets it, returns the first observation and reward 0

So the row at t+1 is not a transition. It is stored like the others, because arrays are rectangular,
but `is_real` keeps it out of the loss. The advantage: the last observation is in the stream
itself, so the value of a truncated episode's end is read from the next row, and no code searches
the infos for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import rookery


@dataclasses.dataclass
class Args:
    """Every setting is a flag of the same name."""

    env_id: str = "CartPole-v1"
    seed: int = 0
    total_steps: int = 100_000
    num_envs: int = 8
    backend: str = "auto"
    num_steps: int = 32
    num_epochs: int = 20
    minibatch_size: int = 256
    learning_rate: float = 1e-3
    gamma: float = 0.98
    gae_lambda: float = 0.8
    clip_range: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    eval_episodes: int = 16


def parse_args() -> Args:
    """Read the flags."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    for field in dataclasses.fields(Args):
        flag = f"--{field.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(field.default), default=field.default)
    return Args(**vars(parser.parse_args()))


class Agent(nn.Module):
    """Two separate networks: what to do, and what it is worth."""

    def __init__(self, num_inputs: int, num_actions: int) -> None:
        super().__init__()
        self.actor = _mlp(num_inputs, num_actions, last_gain=0.01)
        self.critic = _mlp(num_inputs, 1, last_gain=1.0)

    def policy(self, obs: Tensor) -> Categorical:
        """The distribution of actions; validating each costs as much as the forward pass."""
        return Categorical(logits=self.actor(obs), validate_args=False)

    def value(self, obs: Tensor) -> Tensor:
        """float32 ``[...]``."""
        return self.critic(obs).squeeze(-1)


def _mlp(num_inputs: int, num_outputs: int, last_gain: float) -> nn.Sequential:
    sizes, gains = (num_inputs, 64, 64, num_outputs), (2**0.5, 2**0.5, last_gain)
    layers: list[nn.Module] = []
    for i, gain in enumerate(gains):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Rollout:
    """``num_steps`` rows of ``num_envs`` transitions, overwritten again and again."""

    def __init__(self, num_steps: int, num_envs: int, obs_shape: tuple[int, ...]) -> None:
        rows = (num_steps, num_envs)
        self.obs = torch.zeros((num_steps + 1, num_envs, *obs_shape))  # one more: what came last
        self.actions = torch.zeros(rows, dtype=torch.int64)
        self.log_probs = torch.zeros(rows)
        self.rewards = torch.zeros(rows)
        self.terminated = torch.zeros(rows)
        self.ended = torch.zeros(rows)
        self.is_real = torch.zeros(rows, dtype=torch.bool)


class Returns:
    """Sums rewards up to the returns of whole episodes."""

    def __init__(self, num_envs: int) -> None:
        self._running = np.zeros(num_envs)
        self.recent: list[float] = []

    def add(self, reward: Any, ended: Any) -> None:
        """Take a step's rewards and flags, ``[num_envs]`` each."""
        self._running += reward
        self.recent = (self.recent + self._running[ended].tolist())[-100:]
        self._running[ended] = 0.0


@torch.no_grad()
def collect(
    venv: gym.vector.VectorEnv[Any, Any, Any],
    agent: Agent,
    rollout: Rollout,
    was_over: Any,
    returns: Returns,
) -> Any:
    """Fill a rollout, from the observation in its last row on; return which episodes are over."""
    rollout.obs[0] = rollout.obs[-1]
    for t in range(len(rollout.actions)):
        policy = agent.policy(rollout.obs[t])
        action = policy.sample()
        obs, reward, terminated, truncated, _ = venv.step(action.numpy())
        ended = terminated | truncated
        rollout.obs[t + 1] = torch.as_tensor(obs)
        rollout.actions[t] = action
        rollout.log_probs[t] = policy.log_prob(action)
        rollout.rewards[t] = torch.as_tensor(reward)
        rollout.terminated[t] = torch.as_tensor(terminated)
        rollout.ended[t] = torch.as_tensor(ended)
        rollout.is_real[t] = torch.as_tensor(~was_over)  # a reset's row is no experience
        returns.add(reward, ended)
        was_over = ended
    return was_over


@torch.no_grad()
def advantages_and_values(args: Args, agent: Agent, rollout: Rollout) -> tuple[Tensor, Tensor]:
    """Generalised advantages and values, float32 ``[num_steps, num_envs]`` each.

    An episode that terminated is worth nothing more; one that was truncated is worth what the
    critic says of its last observation, the next row's. Nothing passes from episode to episode.
    """
    values = agent.value(rollout.obs)
    advantages = torch.zeros_like(rollout.rewards)
    carried = torch.zeros(rollout.rewards.shape[1])
    for t in reversed(range(len(advantages))):
        bootstrap = values[t + 1] * (1 - rollout.terminated[t])
        delta = rollout.rewards[t] + args.gamma * bootstrap - values[t]
        carried = delta + args.gamma * args.gae_lambda * (1 - rollout.ended[t]) * carried
        advantages[t] = carried
    return advantages, values[:-1]


def update(
    args: Args, agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, clip_range: float
) -> None:
    """Several epochs of clipped policy gradient over the real rows of a rollout."""
    advantages, values = advantages_and_values(args, agent, rollout)
    real = rollout.is_real
    obs, actions, old_log_probs = (
        part[real] for part in (rollout.obs[:-1], rollout.actions, rollout.log_probs)
    )
    advantage, target = advantages[real], (advantages + values)[real]
    for _ in range(args.num_epochs):
        for rows in torch.randperm(len(actions)).split(args.minibatch_size):
            if len(rows) < 2:  # one row has no standard deviation
                continue
            policy = agent.policy(obs[rows])
            ratio = (policy.log_prob(actions[rows]) - old_log_probs[rows]).exp()
            scaled = advantage[rows]
            scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
            clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
            policy_loss = -torch.min(ratio * scaled, clipped * scaled).mean()
            value_loss = (agent.value(obs[rows]) - target[rows]).square().mean()
            entropy = policy.entropy().mean()
            loss = policy_loss + args.value_coef * value_loss - args.entropy_coef * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


@torch.no_grad()
def evaluate(args: Args, agent: Agent) -> float:
    """Mean return of the first episode of each of ``eval_episodes`` envs, with the best actions."""
    venv = rookery.make_vec(args.env_id, args.eval_episodes, backend="serial")
    obs, _ = venv.reset(seed=args.seed + 10_000)
    total, is_running = np.zeros(args.eval_episodes), np.ones(args.eval_episodes, bool)
    while is_running.any():
        action = agent.actor(torch.as_tensor(obs, dtype=torch.float32)).argmax(-1)
        obs, reward, terminated, truncated, _ = venv.step(action.numpy())
        total += reward * is_running
        is_running &= ~(terminated | truncated)
    venv.close()
    return float(total.mean())


def main() -> None:
    """Train and evaluate."""
    args = parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # the networks are too small to share

    venv = rookery.make_vec(args.env_id, args.num_envs, backend=args.backend)
    print(venv.choice or venv)
    agent = Agent(
        int(np.prod(venv.single_observation_space.shape)), int(venv.single_action_space.n)
    )
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    rollout = Rollout(args.num_steps, args.num_envs, venv.single_observation_space.shape)
    returns = Returns(args.num_envs)

    was_over = np.zeros(args.num_envs, bool)
    rollout.obs[-1] = torch.as_tensor(venv.reset(seed=args.seed)[0])
    num_updates = max(args.total_steps // (args.num_steps * args.num_envs), 1)
    start = time.perf_counter()
    for i in range(num_updates):
        remaining = 1 - i / num_updates
        optimizer.param_groups[0]["lr"] = args.learning_rate * remaining
        was_over = collect(venv, agent, rollout, was_over, returns)
        update(args, agent, optimizer, rollout, args.clip_range * remaining)
        if (i + 1) % max(num_updates // 10, 1) == 0:
            steps = (i + 1) * args.num_steps * args.num_envs
            mean_return = np.mean(returns.recent) if returns.recent else float("nan")
            rate = steps / (time.perf_counter() - start)
            print(f"{steps:8} steps, mean return {mean_return:7.1f}, {rate:8,.0f} steps/s")
    venv.close()
    print(f"evaluation: mean return {evaluate(args, agent):.1f}")


if __name__ == "__main__":
    main()
