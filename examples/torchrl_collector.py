"""A TorchRL collector over rookery's workers, through TorchRL's own wrapper for Gymnasium.

    python examples/torchrl_collector.py --total-steps 20000

TorchRL's `GymWrapper` takes any `gymnasium.vector.VectorEnv`. It wants the same-step or the
disabled autoreset mode: with same-step it finds an episode's last observation in the infos, with
disabled it resets the ended envs itself. Where a TorchRL user would start a `ParallelEnv`, with one
process per env, this starts as many workers as there are cores.
"""

from __future__ import annotations

import argparse
import time

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import Compose, GymWrapper, InitTracker, RewardSum, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor

import rookery


def make_env(args: argparse.Namespace) -> TransformedEnv:
    """A TorchRL env with batch size ``[num_envs]`` that also sums rewards up to returns."""
    venv = rookery.make_vec(
        args.env_id, args.num_envs, backend="process", autoreset_mode=args.autoreset_mode
    )
    env = GymWrapper(venv, categorical_action_encoding=True)
    return TransformedEnv(env, Compose(InitTracker(), RewardSum()), auto_unwrap=True)


def make_policy(env: TransformedEnv, num_actions: int) -> ProbabilisticActor:
    """An untrained categorical policy."""
    num_inputs = env.observation_spec["observation"].shape[-1]
    network = MLP(num_inputs, num_actions, num_cells=[64, 64], activation_class=nn.Tanh)
    return ProbabilisticActor(
        TensorDictModule(network, in_keys=["observation"], out_keys=["logits"]),
        in_keys=["logits"],
        spec=env.action_spec,
        distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )


def main() -> None:
    """Collect, and say what came."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--env-id", default="CartPole-v1", help="discrete actions, flat observations"
    )
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--frames-per-batch", type=int, default=1024)
    parser.add_argument("--total-steps", type=int, default=20_000)
    parser.add_argument("--autoreset-mode", choices=["same_step", "disabled"], default="same_step")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a batch of a few envs is too small to share
    env = make_env(args)
    env.set_seed(args.seed)
    policy = make_policy(env, num_actions=int(env.action_spec.space.n))
    collector = Collector(
        env, policy, frames_per_batch=args.frames_per_batch, total_frames=args.total_steps
    )
    start, steps = time.perf_counter(), 0
    for batch in collector:  # a TensorDict of [num_envs, time]
        steps += batch.numel()
        ended = batch["next", "done"]
        returns = batch["next", "episode_reward"][ended]
        mean_return = returns.mean().item() if len(returns) else float("nan")
        print(
            f"{steps:7} steps, batch {tuple(batch.shape)}, "
            f"{len(returns):3} episodes with mean return {mean_return:.1f}"
        )
    print(f"{steps / (time.perf_counter() - start):,.0f} steps/s")
    collector.shutdown()  # closes the env and its workers


if __name__ == "__main__":
    main()
