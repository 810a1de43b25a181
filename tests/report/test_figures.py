"""Figures computed from lines of metrics and telemetry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded_runs import metrics_rows, telemetry_rows

from rookery.report.figures import (
    fault_counts,
    lag_of,
    named_faults,
    series_of,
    speed_over,
    speeds_of,
    time_split,
)
from rookery.report.telemetry import telemetry_figures


def test_values_that_cannot_be_drawn_are_left_out_of_a_series() -> None:
    values = (1.0, float("nan"), float("-inf"), 1e308, "2", None, True, 3)
    rows = [{"step": i, "a": value} for i, value in enumerate(values)]
    series = series_of(rows, "a")
    assert (series.x.tolist(), series.y.tolist()) == ([0, 7], [1, 3])


def test_speed_is_measured_between_lines() -> None:
    rows = [
        {"step": 0, "seconds": 0.0},
        {"step": 100, "seconds": 1.0},
        {"step": 400, "seconds": 2.0},
    ]
    assert speed_over(rows) == 200 and np.isnan(speed_over(rows[:1]))
    x, y = speeds_of(rows)
    assert (x.tolist(), y.tolist()) == ([100, 400], [100, 300])
    assert np.isnan(speed_over([{"step": 1}, {"seconds": 2.0}]))


def test_the_parts_of_the_time_add_up_to_its_total() -> None:
    split = time_split(metrics_rows(11))
    assert split is not None and split.seconds == pytest.approx(20)
    assert sum(split.parts.values()) == pytest.approx(20)
    assert split.parts == pytest.approx(
        {"policy": 3, "envs": 6, "waiting": 2, "rollouts": 1, "learning": 7, "other": 1}
    )
    assert split.beside == {}


def test_time_of_workers_that_continue_during_learning_is_separate() -> None:
    row = {"collect_s": 1.0, "policy_s": 3.0, "env_s": 5.0, "wait_s": 1.0, "learn_s": 8.5}
    split = time_split([{"seconds": 0.0}, {"seconds": 10.0, **row}])
    assert split is not None
    assert split.parts == pytest.approx({"waiting": 1, "learning": 8.5, "other": 0.5})
    assert split.beside == {"policy": 3, "envs": 5}


def test_lines_without_times_have_no_split() -> None:
    assert time_split([]) is None
    assert time_split([{"step": 1, "seconds": 2.0}]) is None


def test_faults_are_counted() -> None:
    rows = [{"worker_restarts": 2.0}, {"worker_restarts": 1.0, "skipped_gradient_steps": 3.0}, {}]
    counts = fault_counts(rows)
    assert named_faults(counts) == {"worker restarts": 2, "skipped gradient steps": 3}
    assert counts == fault_counts([fault_counts(rows[:1]), *rows[1:]])
    assert fault_counts(metrics_rows()) == {} and lag_of(metrics_rows()) is None
    lags = [
        {"step": 1, "policy_lag_mean": 1.0, "policy_lag_max": 2.0},
        {"step": 2, "policy_lag_mean": 2.0},
    ]
    assert lag_of(lags) == (1.5, 2.0)


def test_telemetry_has_figures_of_envs_workers_and_memory() -> None:
    figures = telemetry_figures(telemetry_rows(num_envs=8, num_workers=3))
    assert figures is not None and figures.envs is not None
    assert figures.envs.slowest(2) == [5, 7]
    assert figures.envs.step_mean_s[5] == pytest.approx(72e-6)
    assert np.isnan(figures.envs.reset_p99_s[0])
    names = [process.name for process in figures.processes]
    assert names == ["worker 0", "worker 1", "worker 2", "caller"]
    first, second, third, caller = figures.processes
    assert (first.envs, second.envs, third.envs, caller.envs) == ("0–2", "3–5", "6–7", "")
    assert first.busy_share == pytest.approx(0.45) and np.isnan(caller.busy_share)
    assert (second.restarts, second.restart_causes) == (1, ["killed by SIGSEGV"])
    assert figures.balance == pytest.approx(0.8 / np.mean([0.45, 0.8, 0.45]))
    assert figures.memory.x.tolist() == [10.0 * k for k in range(1, 9)]
    assert figures.memory.y[0] == 3 * 120e6 + 3e5 * (1 + 2) + 410e6 + 1e5
    assert figures.memory_per_hour == pytest.approx(1.08e8 * 3 + 3.6e7)


def test_load_covers_the_last_minute_also_after_a_restart() -> None:
    def line(seconds: float, *busy: float) -> dict[str, Any]:
        return {"seconds": seconds, "workers": [{"busy_s": each} for each in busy]}

    figures = telemetry_figures([line(10, 9, 9), line(110, 99, 99), line(170, 129, 30)])
    assert figures is not None
    assert [each.busy_share for each in figures.processes] == pytest.approx([0.5, 0.5])


def test_names_of_remote_workers_contain_their_node() -> None:
    figures = telemetry_figures([{"workers": [{"node": "10.0.0.2/a1b2c3"}, {"node": None}]}])
    assert figures is not None
    names = [process.name for process in figures.processes]
    assert names == ["worker 0 on 10.0.0.2/a1b2c3", "worker 1"]


@pytest.mark.parametrize(
    "row",
    [
        {}, {"seconds": None, "envs": None, "workers": None, "caller": None},
        {"seconds": "x", "envs": [], "workers": {"a": 1}, "caller": 3},
        {"seconds": 1.0, "envs": {"step_mean_s": [1e-6, None, "x"], "steps": 3}, "workers": [None]},
        {"workers": [{"env_ids": [1], "restarts": None, "restart_causes": "x", "rss_bytes": "1"}]},
        {"workers": [{"env_ids": [None, 2], "restart_causes": [{"a": 1}]}], "caller": {}},
    ],
    ids=range(6),
)  # fmt: skip
def test_missing_and_invalid_telemetry_is_unknown(row: dict[str, Any]) -> None:
    figures = telemetry_figures([row])
    assert figures is not None and np.isnan(figures.balance)
    if figures.envs is not None:
        assert len(figures.envs.steps) == 3 and np.isnan(figures.envs.step_mean_s[1:]).all()
    assert telemetry_figures([]) is None


def test_memory_of_envs_in_the_caller_counts_once() -> None:
    rows = telemetry_rows(num_envs=4, num_workers=1, count=1)
    rows[0]["workers"][0]["in_caller"] = True
    figures = telemetry_figures(rows)
    assert figures is not None
    assert figures.memory.y[-1] == rows[0]["caller"]["rss_bytes"]
    assert figures.processes[0].in_caller and not figures.processes[1].in_caller
