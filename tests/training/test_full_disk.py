"""A disk that is full, as a limit on the size of files, which needs no file system of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
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

def meet(folder, limit):
    rookery.train(
        "CartPole-v1", PPOConfig(num_steps=16, num_epochs=1), total_steps=128, num_envs=2,
        backend="serial", eval_episodes=0, run_dir=folder, checkpoint_interval_s=0.0,
    )
    before = (folder / "checkpoint.pt").read_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        rookery.resume(folder, total_steps=512)
    except BaseException as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(isinstance(error, (OSError, rookery.RookeryError)))
        print(len(traceback.format_exc().splitlines()))
    else:
        print("no error")
        print()
    assert (folder / "checkpoint.pt").read_bytes() == before
    print(*(path.name for path in folder.rglob("*.tmp")))
    print(rookery.resume(folder, total_steps=512).steps)

for limit in sys.argv[2:]:
    meet(pathlib.Path(sys.argv[1]) / limit, int(limit))
"""
# Not even a line of metrics fits; half of a checkpoint does.
LIMITS = ["10", "20000"]


Fill = Callable[[str], tuple[Path, list[str]]]


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Fill:
    """Runs with a limit, all of them by one program.

    Returns: folder of the run; was it an honest error, lines of traceback, files left, steps in the
    end.
    """
    folder = tmp_path_factory.mktemp("disk")
    lines = output_of(SCRIPT, arguments=[str(folder), *LIMITS]).splitlines()
    told = {limit: lines[4 * i : 4 * i + 4] for i, limit in enumerate(LIMITS)}
    return lambda limit: (folder / limit, told[limit])


@pytest.mark.parametrize("limit", LIMITS)
def test_the_last_checkpoint_stays_whole_and_the_run_goes_on_from_it(
    fill: Fill, limit: str
) -> None:
    folder, (honest, _, _, steps) = fill(limit)
    assert (honest, steps) == ("True", "512")
    assert rookery.evaluate(folder, episodes=2).episodes == 2


def test_no_half_of_a_file_is_left(fill: Fill) -> None:
    assert fill(LIMITS[1])[1][2] == ""


def test_a_full_disk_is_told_once(fill: Fill) -> None:
    assert int(fill(LIMITS[1])[1][1]) < 25
