"""SAC learns from a replay while worker processes act by themselves, ahead of it or in step.

python examples/off_policy_in_workers.py --total-steps 8000
"""

from __future__ import annotations

import argparse

import rookery


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=8_000)
    parser.add_argument("--collector", choices=["caller", "workers", "async"], default="async")
    parser.add_argument("--algo", choices=["sac", "td3"], default="sac")
    options = parser.parse_args()
    result = rookery.train(
        "Pendulum-v1",
        options.algo,
        collector=options.collector,
        num_workers=2,
        num_envs=4,
        total_steps=options.total_steps,
        eval_episodes=10,
        run_dir="runs/off-policy-in-workers",
        overwrite=True,
    )
    print(f"{options.algo}, {options.collector}: mean return {result.eval_return_mean:.0f}")


if __name__ == "__main__":
    main()
