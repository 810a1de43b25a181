"""Train for a moment, then act with what was learned, without this library's vector envs.

python examples/load_and_play.py --total-steps 30000
"""

from __future__ import annotations

import argparse

import gymnasium as gym

import rookery


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=30_000)
    parser.add_argument("--run-dir", default="runs/load-and-play")
    options = parser.parse_args()

    config = rookery.PPOConfig(num_steps=32, num_epochs=20, gamma=0.98, gae_lambda=0.8)
    first = rookery.train(
        options.env,
        config,
        total_steps=options.total_steps,
        run_dir=options.run_dir,
        overwrite=True,
    )
    print(f"trained: mean return {first.eval_return_mean:.1f}")

    agent = rookery.load(options.run_dir)  # needs no env
    env = gym.make(options.env)
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        agent.reset()
        total, ended = 0.0, False
        while not ended:
            obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
            total, ended = total + float(reward), terminated or truncated
        print(f"episode with seed {seed}: return {total:.0f}")
    env.close()

    second = rookery.train(
        options.env,
        config,
        total_steps=options.total_steps // 2,
        run_dir=f"{options.run_dir}-more",
        overwrite=True,
        initial=agent,
    )
    print(f"trained further from these weights: mean return {second.eval_return_mean:.1f}")


if __name__ == "__main__":
    main()
