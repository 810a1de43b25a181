"""SIGKILL at any moment costs what came after the last checkpoint, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import output_of
from run_files import assert_same_run

import rookery

# The trainers are forked, so that torch is imported once. Every one of them writes a checkpoint
# after every update, so that many of the kills come while one is written.
SCRIPT = """
import os, pathlib, random, signal, sys, time
import torch
import rookery
from rookery import DQNConfig, PPOConfig

CONFIGS = {
    "ppo": PPOConfig(num_steps=16, num_epochs=2, normalize_reward=True),
    "dqn": DQNConfig(
        warmup_steps=32, batch_size=16, updates_per_step=0.2, num_steps=8, replay_size=500
    ),
}
name = sys.argv[1]
moments = random.Random(0)

def train(folder, checkpoint):
    if checkpoint.exists():
        rookery.resume(folder)
    else:
        rookery.train(
            "CartPole-v1", CONFIGS[name], total_steps=800, num_envs=2, backend="serial",
            eval_episodes=0, run_dir=folder, overwrite=True, checkpoint_interval_s=0.0,
        )

def stamp(checkpoint):
    return checkpoint.stat().st_mtime_ns if checkpoint.exists() else None

def train_on(folder, num_kills):
    # to the end, with so many kills on the way; how many there were
    checkpoint, kills = folder / "checkpoint.pt", 0
    while True:
        before, pid = stamp(checkpoint), os.fork()
        if pid == 0:
            status = 1
            try:
                train(folder, checkpoint)
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

whole, killed = map(pathlib.Path, sys.argv[2:])
print(train_on(whole, 0), train_on(killed, 4))
"""


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_run_whose_trainer_is_killed_again_and_again_ends_as_if_it_had_not(
    tmp_path: Path, algo: str
) -> None:
    folders = [str(tmp_path / name) for name in ("whole", "killed")]
    undisturbed, kills = map(int, output_of(SCRIPT, arguments=[algo, *folders]).split())
    assert undisturbed == 0 and kills > 0
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    assert not list((tmp_path / "killed").rglob("*.tmp"))
    assert rookery.evaluate(tmp_path / "killed", episodes=2).episodes == 2
