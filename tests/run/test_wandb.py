"""Metrics in Weights & Biases, with a fake module."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rookery
from rookery.errors import MissingExtra
from rookery.run.log.sinks import WandbSink


class Run:
    """What ``wandb.init`` returns."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.rows: list[dict[str, float]] = []
        self.metrics: list[tuple[str, str | None]] = []
        self.times_finished = 0

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.metrics.append((name, step_metric))

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def finish(self) -> None:
        self.times_finished += 1


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that were begun."""
    begun: list[Run] = []
    module = ModuleType("wandb")

    def init(**options: Any) -> Run:
        begun.append(Run(options))
        return begun[-1]

    module.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    return begun


def test_metrics_are_drawn_over_env_steps(runs: list[Run]) -> None:
    sink = WandbSink(project="poles", name="first", mode="offline")
    assert not runs
    sink.write(10, {"loss": 0.5})
    sink.write(20, {"loss": 0.25, "entropy": 1.0})
    sink.close()
    sink.close()
    (run,) = runs
    assert run.options == {"project": "poles", "name": "first", "mode": "offline"}
    assert run.metrics == [("env_steps", None), ("*", "env_steps")]
    assert run.rows == [
        {"env_steps": 10, "loss": 0.5},
        {"env_steps": 20, "loss": 0.25, "entropy": 1.0},
    ]
    assert run.times_finished == 1


def test_without_metrics_no_run_is_created(runs: list[Run]) -> None:
    WandbSink(project="poles").close()
    assert not runs


def test_a_trainer_writes_to_it_and_finishes_it(runs: list[Run], tmp_path: Path) -> None:
    config = rookery.PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)
    options: dict[str, Any] = {"total_steps": 64, "num_envs": 2, "backend": "serial"}
    sinks = [WandbSink(project="poles")]
    rookery.train("CartPole-v1", config, run_dir=tmp_path, sinks=sinks, eval_episodes=0, **options)
    (run,) = runs
    assert [row["env_steps"] for row in run.rows] == [32, 64]
    assert all("value_loss" in row for row in run.rows) and run.times_finished == 1


def test_a_missing_wandb_is_reported_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rookery\[wandb\]'"):
        WandbSink(project="poles")
