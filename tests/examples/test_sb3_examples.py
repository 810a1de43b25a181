"""The examples for Stable-Baselines3 users run, on every backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S
from programs import started_program

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # two would fight over a busy machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("sb3_ppo.py", ["--total-steps", "128", "--backend", "auto"]),
        pytest.param(
            "sb3_ppo.py",
            ["--total-steps", "128", "--backend", "process", "--start-method", "spawn"],
            marks=pytest.mark.whole,
        ),
        ("sb3_dqn.py", ["--total-steps", "1100", "--backend", "serial"]),
        pytest.param(
            "sb3_dqn.py", ["--total-steps", "1100", "--backend", "process"], marks=pytest.mark.whole
        ),
    ],
)
def test_an_example_trains_and_says_how_well(script: str, options: list[str]) -> None:
    command = [sys.executable, str(EXAMPLES / script), "--num-envs", "2", *options]
    result = subprocess.run(command, env=ONE_THREAD, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "mean return over 20 episodes" in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")
@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.whole)]
)
def test_ctrl_c_while_it_learns_leaves_no_process(start_method: str, tmp_path: Path) -> None:
    options = ["--backend", "process", "--start-method", start_method, "--num-envs", "2"]
    command = [str(EXAMPLES / "sb3_ppo.py"), *options]
    with started_program(command, tmp_path) as script:
        assert "process" in script.stdout.readline()
        children = psutil.Process(script.pid).children(recursive=True)
        script.send_signal(signal.SIGINT)
        assert script.wait(timeout=PATIENCE_S) != 0
    assert len(children) >= 2
    assert psutil.wait_procs(children, timeout=PATIENCE_S)[1] == []
