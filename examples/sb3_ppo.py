"""PPO of Stable-Baselines3 on CartPole-v1, its environments stepped by rookery.

    python examples/sb3_ppo.py --total-steps 100000

Against a script for Stable-Baselines3 alone, one argument is new: ``vec_env_cls=RookeryVecEnv``.
Workers need no ``if __name__ == "__main__"``, under any start method.
"""

from __future__ import annotations

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from rookery.integrations.sb3 import RookeryVecEnv

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--total-steps", type=int, default=100_000)
parser.add_argument("--num-envs", type=int, default=8)
parser.add_argument("--backend", default="auto", choices=["auto", "serial", "process"])
parser.add_argument("--start-method", choices=["forkserver", "spawn", "fork"])
parser.add_argument("--seed", type=int, default=0)
arguments = parser.parse_args()

# vec_env_kwargs reach rookery.make_vec: num_workers, isolate, caller_steps, faults and more.
vec_env = make_vec_env(
    "CartPole-v1",
    n_envs=arguments.num_envs,
    seed=arguments.seed,
    vec_env_cls=RookeryVecEnv,
    vec_env_kwargs={"backend": arguments.backend, "start_method": arguments.start_method},
)
print(f"envs live here: {vec_env.vector_env.choice or vec_env.vector_env.backend}", flush=True)

model = PPO(
    "MlpPolicy",
    vec_env,
    n_steps=32,
    batch_size=256,
    n_epochs=20,
    gamma=0.98,
    gae_lambda=0.8,
    learning_rate=lambda progress_left: 1e-3 * progress_left,
    clip_range=lambda progress_left: 0.2 * progress_left,
    seed=arguments.seed,
    device="cpu",
)
model.learn(total_timesteps=arguments.total_steps)

mean, std = evaluate_policy(model, vec_env, n_eval_episodes=20)
print(f"mean return over 20 episodes: {mean:.1f} ± {std:.1f} (500 is the most there is)")
vec_env.close()
