"""SIGKILL at random moments of a run's whole life always leaves a run that can be gone on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import output_of
from run_files import assert_same_run

import rookery

# The trainers are forked, so that what is large is imported once, and what remains is mostly
# training and writing. Moments are shares of the time that a whole run takes here.
SCRIPT = """
import os, pathlib, random, signal, sys, time
import matplotlib.backends.backend_agg, matplotlib.figure, torch, torch.utils.tensorboard
import rookery
from rookery import PPOConfig, SACConfig
from rookery.run.checkpoint.files import load_checkpoint

RUNS = {
    "ppo": ("CartPole-v1", PPOConfig(num_steps=16, num_epochs=2, normalize_reward=True)),
    "sac": (
        "Pendulum-v1",
        SACConfig(warmup_steps=32, batch_size=16, updates_per_step=0.2, num_steps=8),
    ),
}
TOTAL_STEPS = 1600
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
num_kills, seed = int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)

def train(path):
    if (path / "checkpoint.pt").exists():
        rookery.resume(path)
    else:
        env, config = RUNS[name]
        rookery.train(
            env, config, total_steps=TOTAL_STEPS, num_envs=2, backend="serial", eval_episodes=0,
            run_dir=path, overwrite=True, checkpoint_interval_s=0.0,
        )

def started(path):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        train(path)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)

def ended(pid, after_s=None):
    # wait for its end, or end it after so many seconds; whether that came first
    deadline = None if after_s is None else time.monotonic() + after_s
    while deadline is None or time.monotonic() < deadline:
        done, status = os.waitpid(pid, 0 if deadline is None else os.WNOHANG)
        if done:
            assert status == 0, f"a trainer ended with {status}"
            return False
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), status  # 0: it came to its end in the last moment
    return status != 0

began = time.monotonic()
ended(started(folder / "whole"))
whole_s = time.monotonic() - began
moments = random.Random(seed)
print(f"{name}: seed {seed}, a whole run takes {whole_s:.2f} s")
kills, run = 0, 0
while kills < num_kills:
    path = folder / f"killed-{run}"
    at = moments.random()
    if not ended(started(path), at * whole_s):
        run += 1  # it was over before; another one begins
        continue
    kills += 1
    checkpoint = path / "checkpoint.pt"
    stands = load_checkpoint(checkpoint)["steps"] if checkpoint.exists() else None
    halves = sorted(file.name for file in path.rglob("*.tmp"))
    print(f"{name}: kill {kills} of run {run} at {at:.4f}: steps {stands} {' '.join(halves)}")
    run += stands == TOTAL_STEPS  # what follows draws a picture, no more
for path in folder.glob("killed-*"):
    ended(started(path))  # gone on with to its end
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_kills", [3, pytest.param(20, marks=pytest.mark.whole)])
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_run_that_was_killed_at_any_moments_ends_as_if_it_had_not(
    tmp_path: Path, algo: str, num_kills: int
) -> None:
    printed = output_of(SCRIPT, arguments=[algo, str(tmp_path), str(num_kills), str(num_kills)])
    print(printed)
    assert len(printed.splitlines()) == 1 + num_kills
    runs = sorted(tmp_path.glob("killed-*"))
    assert runs
    for run in runs:
        assert_same_run(tmp_path / "whole", run)
        assert not list(run.rglob("*.tmp"))
        assert len(list((run / "resume").glob("*"))) == len(
            list((tmp_path / "whole" / "resume").glob("*"))
        )
    assert rookery.evaluate(runs[0], episodes=2).episodes == 2
