"""Whole runs of PPO: gradients derived by hand, torch's, a network of one's own, and SB3.

    python -m benchmarks.gradients [--rounds 5]

Every contender trains in a fresh process on one torch thread, in an order that is shuffled in each
round; seconds run from before the environments start, without evaluation. Written to
results/gradients.json. SB3 steps its envs as it is quickest here, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.conditions import read_conditions

RESULT = Path(__file__).parent / "results" / "gradients.json"
# Settings as SB3's and ours; steps.
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "CartPole, 32 steps x 8 envs, 20 epochs of 256": (
        "CartPole-v1",
        {"num_steps": 32, "num_epochs": 20, "minibatch_size": 256},
        50_000,
    ),
    "CartPole, 256 steps x 8 envs, 10 epochs of 256": (
        "CartPole-v1",
        {"num_steps": 256, "num_epochs": 10, "minibatch_size": 256},
        50_000,
    ),
    "HalfCheetah, 256 steps x 8 envs, 10 epochs of 256": (
        "HalfCheetah-v5",
        {"num_steps": 256, "num_epochs": 10, "minibatch_size": 256},
        40_960,
    ),
}
CONTENDERS = ("by hand", "torch", "own network", "SB3")


def own_network(observation_space: Any, action_space: Any) -> Any:
    """Two towers as a user would write them."""
    from torch import nn

    size = observation_space.shape[0]
    outputs = int(getattr(action_space, "n", 0) or action_space.shape[0])

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [
                (nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n))
                for n in (outputs, 1)
            ]
            self.actor, self.critic = (nn.Sequential(*each) for each in layers)

        def forward(self, obs: Any) -> Any:
            return self.actor(obs), self.critic(obs)[:, 0]

    return Towers()


def train_once(case: str, contender: str, seed: int) -> float:
    """Train, and return the seconds it took."""
    env_id, settings, steps = CASES[case]
    if contender == "SB3":
        return _sb3(env_id, settings, steps, seed)
    import matplotlib.figure  # noqa: F401  imported before the clock starts, as SB3's are
    import tensorboard.summary.writer.event_file_writer  # type: ignore[import-untyped]  # noqa: F401

    import rookery
    from rookery.learn.ppo import PPO

    if contender == "torch":
        PPO.__init__.__defaults__ = (0, False)  # type: ignore[attr-defined]
    network = own_network if contender == "own network" else None
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rookery.train(
            env_id,
            rookery.PPOConfig(**settings),
            network=network,
            total_steps=steps,
            num_envs=8,
            seed=seed,
            run_dir=f"{folder}/run",
            eval_episodes=0,
        )
        return time.perf_counter() - began


def _sb3(env_id: str, settings: dict[str, Any], steps: int, seed: int) -> float:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)
    began = time.perf_counter()
    venv = make_vec_env(env_id, 8, seed=seed)
    model = PPO(
        "MlpPolicy",
        venv,
        n_steps=settings["num_steps"],
        batch_size=settings["minibatch_size"],
        n_epochs=settings["num_epochs"],
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    venv.close()
    return time.perf_counter() - began


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=3, metavar=("CASE", "CONTENDER", "SEED"))
    options = parser.parse_args()
    if options.one:
        case, contender, seed = options.one
        print(train_once(case, contender, int(seed)))
        return
    seconds: dict[str, dict[str, list[float]]] = {c: {k: [] for k in CONTENDERS} for c in CASES}
    for seed in range(options.rounds):
        runs = [(case, contender) for case in CASES for contender in CONTENDERS]
        random.Random(seed).shuffle(runs)
        for case, contender in runs:
            command = [sys.executable, "-m", __spec__.name, "--one", case, contender, str(seed)]
            done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
            done.check_returncode()
            seconds[case][contender].append(float(done.stdout.split()[-1]))
    for case, by_contender in seconds.items():
        print(case)
        for contender, times in by_contender.items():
            ratios = [t / h for t, h in zip(times, by_contender["by hand"], strict=True)]
            print(
                f"  {contender:12} {statistics.median(times):6.2f} s "
                f"[{min(times):.2f}, {max(times):.2f}], {statistics.median(ratios):.2f} of by hand"
            )
    report = {"conditions": read_conditions(), "seconds": seconds}
    RESULT.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
