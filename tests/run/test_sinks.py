"""Sinks of metrics."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

from rookery.run.log.jsonl import read_rows
from rookery.run.log.sinks import JSONLSink, PlainLines, ProgressBar, TensorBoardSink, terminal_sink


def test_jsonl_holds_one_object_per_update(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    sink = JSONLSink(path)
    sink.write(10, {"loss": 0.5, "broken": math.nan})
    sink.write(20, {"loss": 0.25})
    sink.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 10, "loss": 0.5, "broken": None},
        {"step": 20, "loss": 0.25},
    ]


def test_an_incomplete_last_line_is_left_out(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st', "utf-8")
    assert read_rows(path) == [{"step": 1}]


def test_tensorboard_events_can_be_read_back(tmp_path: Path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    sink = TensorBoardSink(tmp_path)
    sink.write(10, {"loss": 0.5})
    sink.close()
    sink.close()
    (file,) = tmp_path.glob("events.out.tfevents.*")
    events = [event for event in EventFileLoader(str(file)).Load() if event.summary.value]
    assert [(event.step, event.summary.value[0].tag) for event in events] == [(10, "loss")]


def test_a_stream_gets_plain_lines():
    stream = io.StringIO()
    sink = terminal_sink(100, stream)
    assert isinstance(sink, PlainLines)
    sink.write(50, {"steps_per_second": 1234.0, "episode_return_mean": 7.0})
    sink.close()
    sink.close()
    assert stream.getvalue() == "50/100 steps  return 7.0  1,234 steps/s\n"


def test_a_terminal_gets_a_progress_bar(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "dumb")
    bar = ProgressBar(100)
    bar.write(50, {"steps_per_second": 1234.0, "episode_return_mean": 7.0})
    bar.close()
    shown = capsys.readouterr().err
    assert "50%" in shown and "return 7.0" in shown and "1,234 steps/s" in shown
