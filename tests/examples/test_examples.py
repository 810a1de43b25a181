"""Every example runs, in a short form, as a user would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

_TORCHRL = "torchrl_collector.py --total-steps 128 --frames-per-batch 64 --num-envs 4"

# Command lines of short runs, the library that each needs, and what it must have printed.
SHORT_RUNS = [
    (
        "gymnasium_switch.py --num-envs 3 --num-steps 40",
        "gymnasium",
        r"All numbers are equal\.",
    ),
    (
        "cleanrl_style_ppo.py --total-steps 1024 --num-epochs 2 --eval-episodes 2",
        "torch",
        r"1024 steps[\s\S]*evaluation: mean return \d+",
    ),
    (
        "trainer_loop.py --total-steps 2048 --eval-every 1024",
        "torch",
        r"2048 steps: \d+[\s\S]*all steps are done; mean return \d+",
    ),
    (
        "load_and_play.py --total-steps 1024",
        "torch",
        r"trained: mean return \d+[\s\S]*seed 2: return \d+[\s\S]*trained further",
    ),
    (
        "own_network.py --total-steps 1024 --eval-episodes 2",
        "torch",
        r"own encoder: mean return \d+[\s\S]*own network[\s\S]*version 0, then 1",
    ),
    (
        "own_algorithm.py --total-steps 1024 --collector workers",
        "torch",
        r"mean return \d+[\s\S]*evaluated again: \d+",
    ),
    ("action_masks.py --total-steps 2000", "torch", r"DQNConfig: [\s\S]*it takes [12]"),
    ("off_policy_in_workers.py --total-steps 1200", "torch", r"sac, async: mean return -\d+"),
    (f"{_TORCHRL} --autoreset-mode same_step", "torchrl", r"128 steps, batch \(4, 16\)"),
    (f"{_TORCHRL} --autoreset-mode disabled", "torchrl", r"128 steps, batch \(4, 16\)"),
]
WITH_WHOLE = SHORT_RUNS[-1:]  # the script is the same, and other tests know the mode


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "library", "expected"),
    [
        pytest.param(*run, id=run[0], marks=[pytest.mark.whole] * (run in WITH_WHOLE))
        for run in SHORT_RUNS
    ],
)
def test_an_example_runs_to_its_end(
    command: str, library: str, expected: str, tmp_path: Path
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    name, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two would fight over a busy machine
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(expected, done.stdout), done.stdout
