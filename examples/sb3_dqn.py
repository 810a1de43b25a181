"""DQN of Stable-Baselines3 on CartPole-v1 with several environments, stepped by rookery.

    python examples/sb3_dqn.py --total-steps 50000

DQN learns from a store of transitions, so what counts is updates per transition. ``train_freq`` is
in steps of the vector env: here every 256 transitions are followed by 128 updates, whatever
``--num-envs`` is.
"""

from __future__ import annotations

import argparse

from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from rookery.integrations.sb3 import RookeryVecEnv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--total-steps", type=int, default=50_000)
parser.add_argument("--num-envs", type=int, default=4)
parser.add_argument("--backend", default="auto", choices=["auto", "serial", "process"])
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

vec_env = make_vec_env(
    "CartPole-v1",
    n_envs=arguments.num_envs,
    seed=arguments.seed,
    vec_env_cls=RookeryVecEnv,
    vec_env_kwargs={"backend": arguments.backend},
)
print(f"envs live here: {vec_env.vector_env.choice or vec_env.vector_env.backend}", flush=True)

model = DQN(
    "MlpPolicy",
    vec_env,
    learning_rate=2.3e-3,
    buffer_size=100_000,
    learning_starts=1_000,
    batch_size=64,
    gamma=0.99,
    train_freq=256 // arguments.num_envs,
    gradient_steps=128,
    target_update_interval=10,
    exploration_fraction=0.16,
    exploration_final_eps=0.04,
    policy_kwargs={"net_arch": [256, 256]},
    seed=arguments.seed,
    device="cpu",
)
model.learn(total_timesteps=arguments.total_steps)

mean, std = evaluate_policy(model, vec_env, n_eval_episodes=20)
print(f"mean return over 20 episodes: {mean:.1f} ± {std:.1f} (500 is the most there is)")
vec_env.close()
