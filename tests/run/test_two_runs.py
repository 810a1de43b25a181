"""One process at a time may write to a run's folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from patience import PATIENCE_S
from programs import started

import rookery

SCRIPT = """
import sys
import rookery
from rookery import PPOConfig
rookery.train(
    "CartPole-v1", PPOConfig(num_steps=16, num_epochs=1), total_steps=10**9, num_envs=2,
    backend="serial", run_dir=FOLDER, checkpoint_interval_s=0.0,
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["resume", "train"])
def test_a_folder_that_another_process_writes_to_is_refused(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    with started(SCRIPT.replace("FOLDER", repr(str(folder))), tmp_path) as other:
        deadline = time.monotonic() + PATIENCE_S
        while not (folder / "checkpoint.pt").exists():
            assert other.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(rookery.ConfigError, match=f"process {other.pid}"):
            if how == "resume":
                rookery.resume(folder, total_steps=1)
            else:
                rookery.train("CartPole-v1", total_steps=1, run_dir=folder, overwrite=True)
        assert other.poll() is None
