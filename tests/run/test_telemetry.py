"""Telemetry files of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery import PPOConfig
from rookery.report.read import read_run
from rookery.run import Trainer

_RUN = {"num_envs": 4, "total_steps": 512, "backend": "serial", "eval_episodes": 0}
_CONFIG = PPOConfig(num_steps=32, minibatch_size=64)


def _train(run_dir: Path, **options: Any) -> None:
    rookery.train("CartPole-v1", _CONFIG, run_dir=run_dir, **{**_RUN, **options})


@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_a_run_writes_a_line_at_its_end_whatever_the_interval(collector, tmp_path: Path) -> None:
    backend = {} if collector == "caller" else {"backend": "auto", "num_workers": 2}
    _train(tmp_path / "run", collector=collector, **backend)
    (row,) = read_run(tmp_path / "run").telemetry()
    assert set(row) == {"step", "seconds", "unix_time", "envs", "workers", "caller"}
    assert row["step"] == 512 == sum(row["envs"]["steps"]) == row["caller"]["env_steps"]
    assert row["caller"]["vector_steps"] == 128
    assert row["seconds"] > 0 and row["unix_time"] > 1.6e9
    assert [worker["in_caller"] for worker in row["workers"]] == (
        [True] if collector == "caller" else [False, False]
    )
    text = (tmp_path / "run" / "telemetry.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text


def test_lines_come_with_every_interval_and_some_numbers_are_metrics(tmp_path: Path) -> None:
    with Trainer(
        "CartPole-v1", _CONFIG, run_dir=tmp_path, overwrite=True, telemetry_interval_s=1e-6,
        **_RUN,
    ) as trainer:  # fmt: skip
        updates = list(trainer)
    run = read_run(tmp_path)
    rows = run.telemetry()
    assert [row["step"] for row in rows] == [update.steps for update in updates]
    assert [sum(row["envs"]["steps"]) for row in rows] == [row["step"] for row in rows]
    names = {name for name in run.metrics if name.startswith("telemetry/")}
    assert {"telemetry/step_p99_s_max", "telemetry/load_imbalance", "telemetry/rss_bytes"} <= names
    told = Path(rookery.__file__).parents[2] / "docs" / "metrics.md"
    assert all(f"`{name}`" in told.read_text() for name in names)


def test_a_resumed_run_continues_telemetry_and_restarts_counts(tmp_path: Path) -> None:
    _train(tmp_path, overwrite=True)
    path = tmp_path / "telemetry.jsonl"
    later = {**json.loads(path.read_text()), "step": 1000}
    with path.open("a") as file:  # as if it had been killed after its checkpoint, amid a line
        file.write(json.dumps(later) + "\n" + '{"step": 1100, "envs": {"st')
    assert [row["step"] for row in read_run(tmp_path).telemetry()] == [512, 1000]
    rookery.resume(tmp_path, total_steps=768)
    rows = read_run(tmp_path).telemetry()
    assert [row["step"] for row in rows] == [512, 768]
    assert sum(rows[1]["envs"]["steps"]) == 256
    assert rows[1]["seconds"] > rows[0]["seconds"]


def test_zero_disables_telemetry_and_a_new_run_deletes_old_lines(tmp_path: Path) -> None:
    _train(tmp_path, overwrite=True)
    assert (tmp_path / "telemetry.jsonl").exists()
    _train(tmp_path, overwrite=True, telemetry_interval_s=0)
    assert not (tmp_path / "telemetry.jsonl").exists()
    assert read_run(tmp_path).telemetry() == []


def test_the_final_evaluation_is_not_in_telemetry(tmp_path: Path) -> None:
    _train(tmp_path, overwrite=True, eval_episodes=4)
    (row,) = read_run(tmp_path).telemetry()
    assert sum(row["envs"]["steps"]) == 512


@pytest.mark.parametrize("value", [-1.0, float("nan"), "often", True])
def test_invalid_intervals_are_refused(value, tmp_path: Path) -> None:
    with pytest.raises(rookery.ConfigError, match="telemetry_interval_s must be"):
        _train(tmp_path / "run", telemetry_interval_s=value)


def _blocked(trainer: Trainer, update: Any) -> None:
    """Have a folder where the file is to be."""
    path = trainer.run_dir.telemetry
    if not path.is_dir():
        path.unlink(missing_ok=True)
        path.mkdir()


def test_a_telemetry_line_that_cannot_be_written_stops_the_run_except_the_last(tmp_path) -> None:
    with pytest.raises(rookery.StorageError, match=r"telemetry\.jsonl"):
        _train(tmp_path / "run", telemetry_interval_s=1e-6, callbacks=[_blocked])
    _train(tmp_path / "last", callbacks=[_blocked])
    assert (tmp_path / "last" / "checkpoint.pt").exists()
