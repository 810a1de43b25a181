"""What the documented commands reach: one run of `rookery train` per algorithm and seed.

The score is that of the run's own final evaluation, 20 deterministic episodes. Seconds are those of
the run, without imports and evaluation.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Case, Effort
from benchmarks.ppo import SOLVED_RETURN
from rookery.training.recorded import read_run

PENDULUM_SCORE = -200.0
QUICK_STEPS = "2000"
MOST_POINTS = 100  # of a curve that is kept

COMMANDS = {
    "ppo-cartpole": "ppo CartPole-v1 --total-steps 100000 --num-envs 8",
    "a2c-cartpole": "a2c CartPole-v1 --total-steps 150000 --num-envs 8 --gamma 0.98",
    "impala-cartpole": (
        "impala CartPole-v1 --total-steps 400000 --num-envs 32 --num-workers 2 --num-steps 10 "
        "--gamma 0.98"
    ),
    "dqn-cartpole": (
        "dqn CartPole-v1 --total-steps 50000 --num-envs 8 --learning-rate 2e-3 "
        "--hidden-sizes 128 128"
    ),
    "sac-pendulum": "sac Pendulum-v1 --total-steps 10000 --num-envs 4",
}

CASES = tuple(
    Case(
        name,
        f"rookery train {command.split(' --', 1)[0]}",
        "pendulum" if "pendulum" in name else "cartpole",
        int(command.split("--num-envs ")[1].split()[0]),
        ("rookery",),
        metric="seconds",
        repetitions=3,
    )
    for name, command in COMMANDS.items()
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Run the documented command; the repetition is the seed."""
    arguments = COMMANDS[case.name].split()
    arguments += ["--preset", "none"]  # those are measured by benchmarks.learning
    if effort.quick:
        arguments += ["--total-steps", QUICK_STEPS]
    result = train_by_command(arguments, repetition)
    score = PENDULUM_SCORE if "pendulum" in case.name else SOLVED_RETURN
    return {
        "seconds": result["seconds"],
        "eval_return": result["eval_return_mean"],
        "solved": float(result["eval_return_mean"] >= score),
        "seed": repetition,
    }


def train_by_command(
    arguments: Sequence[str], seed: int, run_dir: Path | None = None
) -> dict[str, Any]:
    """Run `rookery train`, or go on with the run that was broken off in ``run_dir``.

    Args:
        arguments: of the command, without its seed and folder.
        seed: of the run.
        run_dir: of the run; None keeps none.

    Returns:
        The object that it prints; beside it ``cpu_seconds``, of the command and all its workers,
        with imports and evaluation, and ``curve``. Other children of this process that end
        meanwhile count too. A run that was broken off has no ``cpu_seconds``.
    """
    with tempfile.TemporaryDirectory() as folder:
        run_dir = run_dir or Path(folder) / "run"
        is_broken_off = (run_dir / "checkpoint.pt").exists()
        if is_broken_off:
            words = ["--resume", str(run_dir)]
        else:
            words = [*arguments, "--seed", str(seed), "--run-dir", str(run_dir), "--overwrite"]
        before = children_cpu_seconds()
        command = [sys.executable, "-m", "rookery", "train", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        cpu_seconds = {} if is_broken_off else {"cpu_seconds": children_cpu_seconds() - before}
        curve = curve_of(run_dir)
    return {**json.loads(done.stdout.splitlines()[-1]), **cpu_seconds, "curve": curve}


def children_cpu_seconds() -> float:
    """Processor time of the children of this process that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def curve_of(run_dir: Path) -> dict[str, list[float]]:
    """Env steps and mean return of recent episodes of a run, at most so many points of them."""
    steps, returns = read_run(run_dir).series("episode_return_mean", "step")
    chosen = np.unique(np.linspace(0, max(len(steps) - 1, 0), MOST_POINTS).round().astype(int))
    chosen = chosen[: len(steps)]
    return {
        "steps": steps[chosen].astype(int).tolist(),
        "returns": returns[chosen].round(2).tolist(),
    }
