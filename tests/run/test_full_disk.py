"""A disk that is full, as a limit on the size of files, which needs no file system of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from programs import output_of

import rookery
from rookery import PPOConfig, StorageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")

SCRIPT = """
import pathlib, resource, sys, traceback
import rookery
from rookery import DQNConfig, PPOConfig

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

def meet_at_once(folder, limit):
    # from the very beginning, so that there never was a checkpoint
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    options = dict(
        total_steps=64, num_envs=2, backend="serial", eval_episodes=0, run_dir=folder,
        checkpoint_interval_s=0.0,
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        rookery.train("CartPole-v1", DQNConfig(warmup_steps=8, batch_size=8), **options)
    except rookery.StorageError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(error)
    print((folder / "checkpoint.pt").exists(), (folder / "config.json").exists())
    print(rookery.train("CartPole-v1", "ppo", overwrite=True, **options).steps)

for limit in sys.argv[2:]:
    meet(pathlib.Path(sys.argv[1]) / limit, int(limit))
for limit in sys.argv[2:]:
    meet_at_once(pathlib.Path(sys.argv[1]) / ("first-" + limit), int(limit))
"""
# Not even a line of metrics fits; half of a checkpoint does.
LIMITS = ["10", "20000"]


class Fill:
    """What runs met with a limit on the size of files, all of them in one program.

    Args:
        folder: of the runs.
        lines: that the program printed.
    """

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self._folder, self._lines = folder, lines

    def __call__(self, limit: str) -> tuple[Path, list[str]]:
        """What became of the run that went on with little room.

        Returns: its folder; was it an honest error, lines of traceback, files left, steps in the
        end.
        """
        i = 4 * LIMITS.index(limit)
        return self._folder / limit, self._lines[i : i + 4]

    def at_once(self, limit: str) -> tuple[Path, str, bool, bool, int]:
        """What became of the run that never had room.

        Returns: its folder; the error, whether there was a checkpoint and a config.json afterwards,
        steps of another run in its place.
        """
        i = 4 * len(LIMITS) + 3 * LIMITS.index(limit)
        told, files, steps = self._lines[i : i + 3]
        is_saved, has_config = (word == "True" for word in files.split())
        return self._folder / f"first-{limit}", told, is_saved, has_config, int(steps)


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> Fill:
    """Runs with a limit, all of them by one program."""
    folder = tmp_path_factory.mktemp("disk")
    return Fill(folder, output_of(SCRIPT, arguments=[str(folder), *LIMITS]).splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
def test_the_last_checkpoint_stays_whole_and_the_run_goes_on_from_it(
    fill: Fill, limit: str
) -> None:
    folder, (honest, _, _, steps) = fill(limit)
    assert (honest, steps) == ("True", "512")
    assert rookery.evaluate(folder, episodes=2).episodes == 2


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
def test_where_nothing_was_saved_yet_nobody_is_told_to_resume(fill: Fill, limit: str) -> None:
    folder, told, is_saved, has_config, steps = fill.at_once(limit)
    again = "restart it with overwrite=True (--overwrite)" if has_config else "start it again"
    assert f"cannot write {folder}" in told and "--resume" not in told
    assert told.endswith(f"nothing of this run was saved yet; free disk space and {again}")
    assert (is_saved, steps) == (False, 256)


def test_what_could_not_be_saved_at_the_end_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path, _: Any) -> None:
        raise StorageError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr("rookery.run.checkpoint.state.save_checkpoint", fail)
    with pytest.raises(StorageError, match="cannot write"):
        rookery.train(
            "CartPole-v1", PPOConfig(num_steps=16, num_epochs=1), total_steps=32, num_envs=2,
            backend="serial", eval_episodes=1, run_dir=tmp_path,
        )  # fmt: skip
    assert "saved" not in capsys.readouterr().err


def test_no_half_of_a_file_is_left(fill: Fill) -> None:
    assert fill(LIMITS[1])[1][2] == ""


def test_a_full_disk_is_told_once(fill: Fill) -> None:
    assert int(fill(LIMITS[1])[1][1]) < 25
