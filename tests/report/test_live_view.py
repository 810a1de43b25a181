"""The terminal view of a run."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from recorded_runs import metrics_rows, telemetry_rows
from rich.cells import cell_len
from rich.console import Console

from rookery.report.figures import RunStatus, TimeSplit, series_of, speeds_of, time_split
from rookery.report.live import RunFigures
from rookery.report.live_view import LiveView
from rookery.report.telemetry import telemetry_figures


def _figures(**changes: Any) -> RunFigures:
    rows = metrics_rows(30, 7500)
    figures = RunFigures(
        path="runs/a", title="CartPole-v1  ppo  seed 0", state=RunStatus("running", "running"),
        step=7500, total_steps=10_000, seconds=60.0, left_s=20.0, age_s=1.0, speed=125.0,
        speed_mean=120.0, speeds=speeds_of(rows), returns=series_of(rows, "episode_return_mean"),
        episodes=87, evaluations=[(2500, 120.0, 30.0), (5000, 390.0, 22.0)],
        time_split=time_split(rows), faults={"worker restarts": 1}, lag=(1.2, 3.0),
        telemetry=telemetry_figures(telemetry_rows()), notes=["Something is to be told."],
    )  # fmt: skip
    return replace(figures, **changes)


def _printed(
    figures: RunFigures, width: int = 80, height: int | None = None, **options: Any
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, height=50, legacy_windows=False, **options)
    console.print(LiveView(figures, height, "the footer"))
    return file.getvalue()


def test_the_view_shows_all_figures() -> None:
    text = _printed(_figures(), 100)
    for part in (
        "CartPole-v1  ppo  seed 0", "● running", "75 %", "7.5k of 10k steps", "1:00 trained",
        "0:20 left", "updated 0:01 ago", "390 ± 22", "best 390 of 2", "125 steps/s now",
        "policy lag 1.2 in the mean", "3 updates at most", "worker 1", "3–5", "80 %", "+103 MiB",
        "busiest worker: 1.41 times", "worker restarts: 1", "worker 1: killed by SIGSEGV",
        "slowest 5 of 8", "72 µs", "65 %", "Something is to be told.", "the footer",
    ):  # fmt: skip
        assert part in text


def test_control_characters_of_files_are_escaped() -> None:
    evil = "\x1b[31mred\x1b[2J\x9b1m\x07\r\n\u202eend"
    rows = telemetry_rows()
    for row in rows:
        row["workers"][0] |= {"node": evil, "restarts": 1, "restart_causes": [evil]}
    telemetry = telemetry_figures(rows)
    text = _printed(_figures(title=evil, notes=[evil], telemetry=telemetry), 160)
    assert all(character.isprintable() or character == "\n" for character in text)
    escaped = r"\x1b[31mred\x1b[2J\x9b1m\x07\r\n\u202eend"
    assert text.count(escaped) >= 3  # title, note and cause; names are cut


@pytest.mark.parametrize("width", [20, 32, 40, 57, 80, 104, 131, 300])
@pytest.mark.parametrize("height", [None, 5, 24])
def test_no_line_is_wider_or_lower_than_the_terminal(width: int, height: int | None) -> None:
    lines = _printed(_figures(), width, height).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert height is None or len(lines) <= height
    if width >= 40:
        assert "the footer" in lines[-1] or height == 5


def test_a_wide_terminal_has_two_columns() -> None:
    def line_of(text: str, word: str) -> int:
        return next(i for i, line in enumerate(text.splitlines()) if word in line)

    wide, narrow = _printed(_figures(), 131), _printed(_figures(), 80)
    assert line_of(wide, "Return") == line_of(wide, "Workers")
    assert line_of(narrow, "Return") < line_of(narrow, "Workers")


def test_a_low_terminal_keeps_the_most_important_panels() -> None:
    text = _printed(_figures(), 80, 24)
    assert "running" in text and "Return" in text and "the footer" in text
    assert "Envs" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"telemetry": None, "lag": None, "faults": {}, "notes": [], "evaluations": []},
        {"returns": series_of([], "x"), "speeds": series_of([], "x"), "speed": float("nan")},
        {"total_steps": None, "left_s": None, "time_split": None, "age_s": None},
        {"telemetry": telemetry_figures([{}])},
        {"time_split": TimeSplit(1.0, {"waiting": 1.0}, {"envs": 5.0})},
        {"telemetry": telemetry_figures(telemetry_rows(40, 20, 2))},
    ],
    ids=["bare", "no episode", "no end", "unknown", "ahead", "many workers"],
)
@pytest.mark.parametrize("width", [50, 120])
def test_unknown_figures_are_left_out_or_mentioned(changes: dict[str, Any], width: int) -> None:
    text = _printed(_figures(**changes), width)
    assert "nan" not in text and "None" not in text
    if changes.get("telemetry", ...) is None:
        assert "no telemetry.jsonl" in text
    if "returns" in changes:
        assert "no episode has ended yet" in text


def test_a_run_without_files_shows_its_title_and_state() -> None:
    state = RunStatus("starting", "starting: no update logged yet")
    text = _printed(RunFigures("runs/a", "CartPole-v1", state))
    assert "starting: no update logged yet" in text.splitlines()[0]
    assert len(text.splitlines()) == 2


def test_markup_in_names_is_not_interpreted() -> None:
    figures = _figures(title="[red]mine[/red]  ppo", notes=["[bold]x"])
    text = _printed(figures)
    assert "[red]mine[/red]" in text and "[bold]x" in text


def test_a_terminal_without_unicode_gets_ascii() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, width=120, legacy_windows=False)
    console.print(LiveView(_figures()))
    file.flush()
    assert b"running" in file.buffer.getvalue()  # type: ignore[attr-defined]


def test_no_color_disables_colors() -> None:
    coloured = _printed(_figures(), force_terminal=True, color_system="standard")
    plain = _printed(_figures(), force_terminal=True, color_system="standard", no_color=True)
    assert "\x1b[32m" in coloured and "\x1b[32m" not in plain
