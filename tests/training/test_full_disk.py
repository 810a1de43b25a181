"""A disk that is full, as a limit on the size of files, which needs no file system of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs import output_of

import rookery

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")

SCRIPT = """
import pathlib, resource, sys, traceback
import rookery
from rookery import PPOConfig
from rookery.training.checkpoint import load_checkpoint

folder = pathlib.Path(sys.argv[1])
rookery.train(
    "CartPole-v1", PPOConfig(num_steps=16, num_epochs=1), total_steps=128, num_envs=2,
    backend="serial", eval_episodes=0, run_dir=folder, checkpoint_interval_s=0.0,
)
before = (folder / "checkpoint.pt").read_bytes()
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
try:
    rookery.resume(folder, total_steps=512)
except BaseException as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(isinstance(error, (OSError, rookery.RookeryError)))
    print(len(traceback.format_exc().splitlines()))
else:
    print("no error")
assert (folder / "checkpoint.pt").read_bytes() == before
print(*(path.name for path in folder.rglob("*.tmp")))
print(rookery.resume(folder, total_steps=512).steps)
"""
# Not even a line of metrics fits; half of a checkpoint does.
LIMITS = ["10", "20000"]


def _fill(folder: Path, limit: str) -> list[str]:
    """Return: was it an honest error, lines of traceback, files left, steps in the end."""
    return output_of(SCRIPT, arguments=[str(folder / "run"), limit]).split("\n")


@pytest.mark.parametrize("limit", LIMITS)
def test_the_last_checkpoint_stays_whole_and_the_run_goes_on_from_it(
    tmp_path: Path, limit: str
) -> None:
    honest, _, _, steps, _ = _fill(tmp_path, limit)
    assert (honest, steps) == ("True", "512")
    assert rookery.evaluate(tmp_path / "run", episodes=2).episodes == 2


@pytest.mark.xfail(strict=True, reason="a half-written checkpoint.pt.tmp is left behind")
def test_no_half_of_a_file_is_left(tmp_path: Path) -> None:
    assert _fill(tmp_path, LIMITS[1])[2] == ""


@pytest.mark.xfail(strict=True, reason="a full disk is told with several chained tracebacks")
def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    assert int(_fill(tmp_path, LIMITS[1])[1]) < 25
