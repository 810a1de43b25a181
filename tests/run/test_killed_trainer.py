"""SIGKILL at any moment costs what came after the last checkpoint, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import output_of
from run_files import assert_same_run

import rookery

# The trainers are forked, so that what is large is imported once. Every one of them writes a
# checkpoint after every update, so that many of the kills come while one is written.
SCRIPT = """
import os, pathlib, random, signal, sys, time
import matplotlib.backends.backend_agg, matplotlib.figure, torch.utils.tensorboard
import rookery
from rookery import DQNConfig, PPOConfig

CONFIGS = {
    "ppo": PPOConfig(num_steps=16, num_epochs=2, normalize_reward=True),
    "dqn": DQNConfig(
        warmup_steps=32, batch_size=16, updates_per_step=0.2, num_steps=8, replay_size=500
    ),
}
moments = random.Random(0)

def train(name, folder, checkpoint):
    if checkpoint.exists():
        rookery.resume(folder)
    else:
        rookery.train(
            "CartPole-v1", CONFIGS[name], total_steps=480, num_envs=2, backend="serial",
            eval_episodes=0, run_dir=folder, overwrite=True, checkpoint_interval_s=0.0,
        )

def stamp(checkpoint):
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else None

def train_on(name, folder, num_kills):
    # to the end, with so many kills on the way; how many there were
    checkpoint, kills = folder / "checkpoint.pt", 0
    while True:
        before, pid = stamp(checkpoint), os.fork()
        if pid == 0:
            status = 1
            try:
                train(name, folder, checkpoint)
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        is_over = 0
        while not is_over and (kills == num_kills or stamp(checkpoint) == before):
            is_over, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
        if is_over:
            assert status == 0, status
            return kills
        time.sleep(moments.uniform(0.0, 0.1))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        kills += os.WIFSIGNALED(status)

for name in CONFIGS:
    folder = pathlib.Path(sys.argv[1]) / name
    print(train_on(name, folder / "whole", 0), train_on(name, folder / "killed", 3))
"""
ALGORITHMS = ("ppo", "dqn")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[int]]]:
    """For each algorithm the folder of both its runs, and how often each was killed."""
    folder = tmp_path_factory.mktemp("runs")
    lines = output_of(SCRIPT, arguments=[str(folder)]).splitlines()
    return {
        name: (folder / name, [int(number) for number in line.split()])
        for name, line in zip(ALGORITHMS, lines, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_whose_trainer_is_killed_again_and_again_ends_as_if_it_had_not(
    runs: dict[str, tuple[Path, list[int]]], algo: str
) -> None:
    folder, (undisturbed, kills) = runs[algo]
    assert undisturbed == 0 and kills > 0
    assert_same_run(folder / "whole", folder / "killed")
    assert not list((folder / "killed").rglob("*.tmp"))
    assert rookery.evaluate(folder / "killed", episodes=2).episodes == 2
