"""A custom training loop, with evaluations, a sink and a callback.

python examples/trainer_loop.py --total-steps 50000
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path

import rookery
from rookery.callbacks import CheckpointEvery, EvaluateEvery


class CSVSink:
    """Metrics as a table; any object with these two methods is a sink."""

    NAMES = ("episode_return_mean", "policy_loss", "learning_rate")

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", newline="")
        self._table = csv.writer(self._file)
        self._table.writerow(["step", *self.NAMES])

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._table.writerow([step, *(metrics.get(name) for name in self.NAMES)])

    def close(self) -> None:
        self._file.close()


def stop_when_slow(trainer: rookery.Trainer, update: rookery.Update) -> None:
    """A callback is any callable; this one ends a run that makes no headway."""
    if update.metrics["seconds"] > 600:
        raise rookery.StopTraining("ten minutes are over")


def warm_up_and_fall(progress: float) -> float:
    """A schedule is any function of the share of the training that is done."""
    return 1e-3 * min(progress / 0.05, 1.0) * (1.0 - progress)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--eval-every", type=int, default=10_000)
    parser.add_argument("--run-dir", default="runs/trainer-loop")
    options = parser.parse_args()

    config = rookery.PPOConfig(
        num_steps=32, num_epochs=20, gamma=0.98, gae_lambda=0.8, learning_rate=warm_up_and_fall
    )
    table = Path("trainer_loop.csv")
    with rookery.Trainer(
        options.env,
        config,
        total_steps=options.total_steps,
        num_envs=8,
        run_dir=options.run_dir,
        overwrite=True,
        callbacks=[
            EvaluateEvery(options.eval_every, episodes=10, stop_at=500.0),
            CheckpointEvery(options.eval_every, keep=3),
            stop_when_slow,
        ],
        sinks=[CSVSink(table)],
    ) as trainer:
        for update in trainer:
            if "eval_return_mean" in update.metrics:
                print(f"{update.steps:7d} steps: {update.metrics['eval_return_mean']:.1f}")
        score = trainer.evaluate(episodes=20)
    reason = trainer.stopped or "all steps are done"
    print(f"{reason}; mean return {score.eval_return_mean:.1f}")
    print(f"best of the evaluations on the way: {trainer.best_return}")


if __name__ == "__main__":
    main()
