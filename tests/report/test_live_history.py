"""The lines that are kept while a run is watched."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from recorded_runs import metrics_rows, telemetry_rows, write_lines

from rookery.errors import ConfigError
from rookery.report.figures import Row, fault_counts
from rookery.report.live import MetricsSoFar
from rookery.report.telemetry import (
    Recent,
    TelemetrySoFar,
    Thinned,
    telemetry_figures,
    telemetry_in,
)


def test_thinned_items_are_bounded_and_even_and_have_the_last() -> None:
    thinned: Thinned[int] = Thinned(most=10)
    for i in range(1003):
        thinned.add(i)
        kept = thinned.items()
        assert len(kept) <= 12 and (kept[0], kept[-1]) == (0, i)
    assert {b - a for a, b in pairwise(kept[:-1])} == {128}


def _recent(rows: list[Row]) -> list[Row]:
    kept = Recent()
    for row in rows:
        kept.add(row)
    return kept.rows()


def test_recent_lines_cover_a_minute_and_the_line_before() -> None:
    rows = metrics_rows(100)
    assert [row["seconds"] for row in _recent(rows)] == list(range(140, 202, 2))
    assert _recent(rows[:1]) == rows[:1] and _recent([]) == []
    slow = [{"seconds": 1000.0 * i, "step": i} for i in range(4)]
    assert _recent(slow) == slow[-2:]
    assert _recent([{"step": i} for i in range(4)]) == [{"step": 2}, {"step": 3}]


def test_a_long_run_keeps_its_faults_and_evaluations_and_few_lines() -> None:
    rows = metrics_rows(9000)
    rows[17] |= {"skipped_gradient_steps": 2.0, "worker_restarts": 3.0, "eval_return_mean": 7.0}
    rows[8001]["skipped_gradient_steps"] = 1.0
    so_far = MetricsSoFar()
    for row in rows:
        so_far.add(row)
    assert so_far.faults == fault_counts(rows)
    assert so_far.faults == {"worker_restarts": 3.0, "skipped_gradient_steps": 3.0}
    assert so_far.evaluations == [(rows[17]["step"], 7.0, 0.0)]
    assert len(so_far.rows()) < 2002 and so_far.rows()[-1] == rows[-1]


def test_telemetry_keeps_the_memory_of_all_lines() -> None:
    assert TelemetrySoFar().figures() is None
    figures = telemetry_figures(telemetry_rows(count=30))
    assert figures is not None and len(figures.memory.x) == 30


def test_telemetry_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "telemetry.jsonl"
    assert telemetry_in(path) is None
    rows = telemetry_rows()
    write_lines(path, rows)
    with path.open("a") as file:
        file.write('{"half')
    assert repr(telemetry_in(path)) == repr(telemetry_figures(rows))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"telemetry\.jsonl cannot be read: Permission denied"):
        telemetry_in(path)
