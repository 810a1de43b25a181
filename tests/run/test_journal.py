"""Metrics in the journal, and training time by activity."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from run_files import assert_same_run

import rookery
from rookery import DQNConfig, PPOConfig
from rookery.collect.base import Collector
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.log.clock import CallerMeter, Clock, WorkerMeter
from rookery.run.log.journal import Journal
from rookery.run.log.jsonl import read_rows
from rookery.run.log.sinks import JSONLSink, Sink


class Notes(Sink):
    def __init__(self) -> None:
        self.lines: list[tuple[int, dict[str, float]]] = []

    def write(self, step, metrics):
        self.lines.append((step, dict(metrics)))

    def close(self):
        self.lines.append((-1, {}))


def _add(journal: Journal, steps: int, loss: float | None = None) -> None:
    metrics = {} if loss is None else {"loss": loss}
    journal.add(steps, {"episodes": float(steps)}, metrics, {"learn_s": 1.0})


def test_a_line_has_the_latest_the_mean_and_the_sum():
    notes = Notes()
    journal = Journal([notes], log_steps=100)
    _add(journal, 40)  # before the first gradient step there is no loss
    _add(journal, 80, 1.0)
    assert notes.lines == []
    _add(journal, 120, 2.0)
    assert notes.lines == [(120, {"episodes": 120.0, "loss": 1.5, "learn_s": 3.0})]


def test_every_update_is_a_line_without_log_steps():
    notes = Notes()
    journal = Journal([notes], log_steps=0, steps=64)
    _add(journal, 128, 1.0)
    _add(journal, 192, 3.0)
    assert [step for step, _ in notes.lines] == [128, 192]
    assert notes.lines[1][1]["loss"] == 3.0


def test_close_writes_remaining_metrics_once():
    notes = Notes()
    journal = Journal([notes], log_steps=100)
    _add(journal, 120, 1.0)
    _add(journal, 130, 5.0)
    journal.close()
    assert [step for step, _ in notes.lines] == [120, 130, -1]
    empty = Notes()
    Journal([empty], log_steps=0, steps=500).close()
    assert empty.lines == [(-1, {})]


def test_resumed_lines_follow_the_kept_ones(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    first = JSONLSink(path)
    for step in (10, 20, 30):
        first.write(step, {"loss": float(step)})
    first.close()
    second = JSONLSink(path, resume_step=20)
    second.write(25, {"loss": 25.0})
    second.close()
    assert [row["step"] for row in read_rows(path)] == [10, 20, 25]


def test_a_peak_is_the_largest_of_a_line():
    notes = Notes()
    journal = Journal([notes], log_steps=20)
    for steps, lag in [(10, 3.0), (20, 1.0), (30, 0.0), (40, 2.0)]:
        journal.add(steps, {}, {}, {}, {"policy_lag_max": lag})
    assert [metrics["policy_lag_max"] for _, metrics in notes.lines] == [3.0, 2.0]


class _Counting(Collector):
    def collect(self):
        raise AssertionError("not called")


def test_counters_and_schedules_stand_as_after_the_last_update_and_counts_are_sums():
    notes = Notes()
    journal = Journal([notes], 20, latest=("gradient_steps",), summed=("skipped",))
    for steps, skipped in [(10, 3.0), (20, 1.0), (30, 0.0), (40, 2.0)]:
        journal.add(steps, {}, {"gradient_steps": 2.0 * steps, "skipped": skipped}, {})
    assert notes.lines == [
        (20, {"gradient_steps": 40.0, "skipped": 4.0}),
        (40, {"gradient_steps": 80.0, "skipped": 2.0}),
    ]


def test_lines_of_a_run_have_metrics_of_the_learner(tmp_path: Path):
    algo = DQNConfig(warmup_steps=200, final_learning_rate=0.0)
    options = {"num_envs": 4, "backend": "serial", "eval_episodes": 0}
    with rookery.Trainer(
        "CartPole-v1", algo, total_steps=2000, run_dir=tmp_path, **options
    ) as trainer:
        told = {update.steps: update.metrics for update in trainer}
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert len(rows) == 2
    for row in rows:
        for name in ("gradient_steps", "epsilon", "learning_rate"):
            assert row[name] == told[row["step"]][name]
    state = load_checkpoint(tmp_path / "checkpoint.pt")
    assert rows[-1]["gradient_steps"] == state["learner"]["gradient_steps"]


def test_time_is_split_among_policy_envs_waiting_and_learning():
    venv = rookery.make_vec("CartPole-v1", 2, backend="serial")
    collector = _Counting()
    clock = Clock(CallerMeter(collector, venv), seconds=100.0)
    venv.reset(seed=0)
    venv.step(np.zeros(2, np.int64))
    busy = venv.statistics().workers[0].busy_s
    collector.policy_s, collector.env_s = 0.25, busy + 2.0
    began = time.perf_counter()
    times = clock.lap(began, began + 0.5)
    venv.close()
    assert busy > 0.0
    assert times["policy_s"] == 0.25
    assert times["collect_s"] == pytest.approx(0.5)
    assert times["env_s"] == pytest.approx(busy)
    assert times["wait_s"] == pytest.approx(2.0)
    assert clock.seconds > 100.0


@pytest.mark.parametrize(("runs_ahead", "wait"), [(False, 1.0), (True, 4.0)])
def test_collecting_from_workers_that_run_ahead_is_waiting(runs_ahead: bool, wait: float):
    collector = _Counting()
    meter = WorkerMeter(collector, runs_ahead)
    collector.policy_s, collector.env_s = 1.0, 2.0
    assert meter.lap(4.0) == {"policy_s": 1.0, "env_s": 2.0, "wait_s": wait}
    assert meter.lap(0.0) == {"policy_s": 0.0, "env_s": 0.0, "wait_s": 0.0}


def test_every_algorithm_reports_where_its_time_goes(tmp_path: Path):
    config = PPOConfig(num_steps=16, num_epochs=1)
    rookery.train(
        "CartPole-v1", config, total_steps=64, num_envs=2, run_dir=tmp_path, eval_episodes=0,
        backend="process", num_workers=2,
    )  # fmt: skip
    for row in read_rows(tmp_path / "metrics.jsonl"):
        parts = row["policy_s"] + row["env_s"] + row["wait_s"]
        assert 0.0 < parts <= row["collect_s"]
        assert row["env_s"] > 0.0 and row["learn_s"] > 0.0


def test_videos_ask_for_what_they_need(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "moviepy", None)  # as if it was not installed
    with pytest.raises(rookery.MissingExtra, match=r"pip install 'rookery\[video\]'"):
        rookery.train("CartPole-v1", run_dir=tmp_path / "run", video_every=100)
    assert not (tmp_path / "run").exists()


def test_videos_are_recorded_at_intervals_without_effect_on_training(tmp_path: Path):
    cv2 = pytest.importorskip("cv2")
    pytest.importorskip("moviepy")
    config = PPOConfig(num_steps=16, num_epochs=1)
    for name, every in (("with", 100), ("without", 0)):
        rookery.train(
            "CartPole-v1", config, total_steps=256, num_envs=2, run_dir=tmp_path / name,
            backend="serial", eval_episodes=0, video_every=every,
        )  # fmt: skip
    files = sorted((tmp_path / "with" / "videos").iterdir())
    assert [file.name.partition("-episode")[0] for file in files] == ["step-128", "step-224"]
    for file in files:
        video = cv2.VideoCapture(str(file))
        frames = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
        is_read, frame = video.read()
        video.release()
        assert frames > 5 and is_read and frame.std() > 0
    assert_same_run(tmp_path / "with", tmp_path / "without")
