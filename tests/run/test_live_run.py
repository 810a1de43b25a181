"""Figures of a run that is still training."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from recorded_runs import metrics_rows, telemetry_rows, write_lines, write_run

from rookery.errors import ConfigError, StorageError
from rookery.report.live import LiveRun
from rookery.report.read import read_run
from rookery.run.checkpoint.run_dir import RunDirectory

NOBODY = 2**22 + 1  # more processes than Linux has


def _hold(path: Path, process: int) -> Path:
    """Have the folder look as if a process had it."""
    path.mkdir(exist_ok=True)
    file = RunDirectory(path).writer_file
    file.write_text(str(process))
    return file


def test_a_running_run_has_its_progress(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", metrics_rows(30, 7500), telemetry=telemetry_rows())
    _hold(path, os.getpid())
    figures = LiveRun(path).figures()
    assert figures.state.kind == "running" and not figures.state.is_over
    assert figures.title == "CartPole-v1  ppo  seed 0"
    assert (figures.step, figures.total_steps, figures.seconds) == (7500, 10_000, 60.0)
    assert figures.speed == pytest.approx(125) and figures.left_s == pytest.approx(20)
    assert figures.telemetry is not None and figures.notes == []
    assert len(figures.returns.x) == 29


def test_each_end_of_a_run_has_its_state(tmp_path: Path) -> None:
    whole = LiveRun(write_run(tmp_path / "whole")).figures()
    assert (whole.state.kind, whole.left_s) == ("finished", None)
    some = metrics_rows(30, 7500)
    stopped = LiveRun(write_run(tmp_path / "stopped", some)).figures()
    assert stopped.state.kind == "stopped" and stopped.state.is_over
    goal = write_run(
        tmp_path / "goal", some, evaluations=[(7000, 480.0, 1.0)], train={"stop_at": 475.0}
    )
    assert "an evaluation reached 475" in LiveRun(goal).figures().state.text
    nothing = LiveRun(write_run(tmp_path / "nothing", [])).figures()
    assert nothing.state.kind == "stopped" and nothing.step == 0


def test_a_run_of_a_dead_process_is_lost_once_its_files_are_old(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", metrics_rows(30, 7500))
    _hold(path, NOBODY)
    live = LiveRun(path)
    assert live.figures().state.kind == "running"  # perhaps on another machine
    assert live.figures(now=time.time() + 100).state.kind == "lost"


def test_a_reused_process_id_is_not_the_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", metrics_rows(30, 7500))
    file = _hold(path, os.getpid())
    os.utime(file, (1e9, 1e9))  # long before this process began
    assert LiveRun(path).figures(now=time.time() + 100).state.kind == "lost"


def test_an_evaluation_at_the_end_is_mentioned(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    _hold(path, os.getpid())
    assert "evaluating" in LiveRun(path).figures().state.text


def test_a_run_without_files_is_starting(tmp_path: Path) -> None:
    path = tmp_path / "run"
    _hold(path, os.getpid())
    live = LiveRun(path)
    assert live.figures().state.kind == "starting"
    write_run(path, metrics_rows(2, 500))
    figures = live.figures()
    assert (figures.state.kind, figures.step, figures.title) == (
        "running", 500, "CartPole-v1  ppo  seed 0",
    )  # fmt: skip


def test_a_run_that_is_resumed_while_it_is_watched_is_followed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", metrics_rows(40, 10_000))
    live = LiveRun(path)
    assert live.figures().state.kind == "finished"
    _hold(path, os.getpid())
    config = json.loads((path / "config.json").read_text())
    config["train"]["total_steps"] = 40_000
    (path / "config.json").write_text(json.dumps(config))
    write_lines(path / "new", metrics_rows(30, 7500))
    (path / "new").replace(path / "metrics.jsonl")
    figures = live.figures()
    assert (figures.state.kind, figures.step, figures.total_steps) == ("running", 7500, 40_000)
    assert figures.notes == ["The run was resumed or restarted while it was watched."]


def test_an_overwritten_run_has_no_configuration_for_a_moment(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    live = LiveRun(path)
    _hold(path, os.getpid())
    for name in ("config.json", "metrics.jsonl"):
        (path / name).unlink()
    assert live.figures().state.kind == "starting"


def test_a_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    live = LiveRun(path)
    shutil.rmtree(path)
    with pytest.raises(StorageError, match=r"run was moved or deleted"):
        live.figures()


def test_a_folder_without_a_run_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        LiveRun(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"holds no run"):
        LiveRun(tmp_path)
    write_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"is not a run, but contains 1, such as .*run"):
        LiveRun(tmp_path)


def test_an_unreadable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_run(tmp_path / "run")
    live = LiveRun(path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(ConfigError, match="run cannot be read: Permission denied"):
        LiveRun(path)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StorageError, match="run cannot be read: Permission denied"):
        live.figures()


def test_missing_and_damaged_lines_are_mentioned(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", metrics_rows(30, 7500))
    with (path / "metrics.jsonl").open("a") as file:
        file.write("nonsense\n")
    _hold(path, os.getpid())
    figures = LiveRun(path).figures(now=time.time() + 300)
    assert [note[:23] for note in figures.notes] == [
        "No metrics were written", "metrics.jsonl: 1 damage",
    ]  # fmt: skip


def test_telemetry_of_an_old_run_is_empty(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    assert read_run(path).telemetry() == [] and LiveRun(path).figures().telemetry is None
    rows = telemetry_rows(count=2)
    write_lines(path / "telemetry.jsonl", rows)
    assert read_run(path).telemetry() == rows
