"""Whether runs with more envs learn alike, with scaled settings and with settings as they are.

    python -m benchmarks.scaling --seeds 0 1 --total-steps 100000

draws docs/pictures/scaling-hyperparameters.png. Runs lie in --runs; those that are there are not
made again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import rookery
from rookery.report.comparison import Curve, Panel, draw_comparison
from rookery.report.read import RecordedRun, read_run
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "scaling-hyperparameters.png"
LABELS = {False: "settings as they are", True: "--scale-hyperparameters"}


def main() -> None:
    """Train what is missing, and draw all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--num-envs", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--total-steps", type=int, default=100_000)
    parser.add_argument("--solved", type=float, default=400.0, help="a return whose step is told")
    parser.add_argument("--runs", type=Path, default=Path("runs/scaling"))
    parser.add_argument("--output", type=Path, default=PICTURE)
    told = parser.parse_args()
    panels = []
    for num_envs in told.num_envs:
        curves = [
            _curve([_run(told, num_envs, seed, scales) for seed in told.seeds], LABELS[scales])
            for scales in LABELS
        ]
        panels.append(Panel(f"{told.algo} on {told.env}, {num_envs} envs", curves))
    with whole_file(told.output, has_one_writer=False) as picture:
        draw_comparison(picture, panels, "environment steps", "episode_return_mean")


def _run(told: argparse.Namespace, num_envs: int, seed: int, scales: bool) -> RecordedRun:
    """Train one run, unless its folder holds one already."""
    name = f"{told.env}-{told.algo}-{num_envs}-{seed}-{'scaled' if scales else 'plain'}"
    folder = told.runs / name
    if not RunDirectory(folder).evaluations.is_file():
        result = rookery.train(
            told.env,
            told.algo,
            preset="auto",
            num_envs=num_envs,
            seed=seed,
            total_steps=told.total_steps,
            scale_hyperparameters=scales,
            backend="serial",
            run_dir=folder,
            overwrite=True,
        )
        print(name, result.eval_return_mean, f"{result.seconds:.0f} s", file=sys.stderr)
    run = read_run(str(folder))
    steps, returns = run.series("episode_return_mean", "step")
    reached = steps[returns >= told.solved]
    print(name, f"return {told.solved:g} at", int(reached[0]) if len(reached) else "no step")
    return run


def _curve(runs: list[RecordedRun], label: str) -> Curve:
    return Curve(label, [run.series("episode_return_mean", "step") for run in runs])


if __name__ == "__main__":
    main()
