"""The page about runs, as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from recorded_runs import metrics_rows, telemetry_rows

from rookery.report.comparison import Curve
from rookery.report.figures import RunStatus, Series, series_of, time_split
from rookery.report.page import html as report_page
from rookery.report.page.charts import curves_chart, envs_chart, memory_chart
from rookery.report.page.content import Chart, Report, ReportRun, Section, Setting
from rookery.report.page.html import page_of
from rookery.report.telemetry import telemetry_figures

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 }}&amp;"
_VOID = {"meta", "br", "img", "link", "input", "hr"}


class Markup(HTMLParser):
    """Reads a page, complains where elements do not close, and keeps what it holds."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def _run(name: str = "a", **changes: Any) -> ReportRun:
    run = ReportRun(
        name=name, path=f"/runs/{name}", group=0, state=RunStatus("finished", "finished: all"),
        facts={"steps": "10k", "return": "480"}, time_split=time_split(metrics_rows()),
        faults={"worker restarts": 2}, telemetry=telemetry_figures(telemetry_rows()),
    )  # fmt: skip
    return replace(run, **changes)


def _report(**changes: Any) -> Report:
    curve = Curve("ppo", [series_of(metrics_rows(), "episode_return_mean")], [(5000, 200.0, 9.0)])
    report = Report(
        title="CartPole-v1, ppo, seed 0", written="Written today.", groups=["ppo (1 seed)"],
        runs=[_run()],
        sections=[Section("CartPole-v1", [Chart("episode_return_mean", [(0, curve)], True)])],
        settings=[
            Setting("gamma", [("0.9", False)], "0.99", True),
            Setting("seed", [("0", True)], "0", True),
        ],
        versions=[("numpy", ["2.0"])],
    )  # fmt: skip
    return replace(report, **changes)


def _assert_refers_to_nothing(page: str, markup: Markup) -> None:
    own = {attributes.get("id") for _, attributes in markup.elements}
    for tag, attributes in markup.elements:
        assert tag not in ("script", "img", "link", "iframe", "object", "embed", "base", "a")
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "srcset", "action"), name
            if name.endswith("href"):
                assert value and value.startswith("#") and value[1:] in own
            for reference in re.findall(r"url\(([^)]*)\)", value or ""):
                assert reference.startswith("#") and reference[1:] in own
    assert "://" not in page and "@import" not in page


def test_the_page_is_complete_and_self_contained() -> None:
    page = page_of(_report())
    markup = Markup(page)
    _assert_refers_to_nothing(page, markup)
    assert page.startswith("<!DOCTYPE html>")
    policy = [a for t, a in markup.elements if t == "meta" and "http-equiv" in a]
    assert policy[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    ids = [a["id"] for t, a in markup.elements if "id" in a]
    assert len(set(ids)) == len(ids) > 10


def test_the_page_shows_all_figures() -> None:
    markup = Markup(page_of(_report()))
    for part in (
        "CartPole-v1, ppo, seed 0", "Written today.", "/runs/a", "finished: all", "480",
        "episode_return_mean", "environment steps", "policy 15 %", "worker 1", "+103 MiB",
        "killed by SIGSEGV", "worker restarts 2", "All 8 envs", "72 µs", "65 %", "gamma", "0.9",
        "0.99", "1 settings that have their defaults", "numpy", "2.0",
    ):  # fmt: skip
        assert part in " ".join(markup.text.split()), part
    assert markup.count("svg") == 4  # the return twice, for wide and narrow windows


def test_the_page_has_a_light_and_a_dark_theme() -> None:
    page = page_of(_report())
    assert "prefers-color-scheme: dark" in page
    svg = page[page.index("<svg") : page.index("</svg>")]
    assert "var(--c0)" in svg and "var(--ink)" in svg and not re.search(r"#[0-9a-f]{6}", svg)


def test_text_from_files_is_escaped() -> None:
    curve = Curve(EVIL, [series_of(metrics_rows(), "value_loss")])
    rows = telemetry_rows()
    rows[-1]["workers"][0]["restart_causes"] = [EVIL]
    run = _run(
        EVIL, path=EVIL, facts={EVIL: EVIL}, state=RunStatus("lost", EVIL), faults={EVIL: 3},
        telemetry=telemetry_figures(rows),
    )  # fmt: skip
    evil = _report(
        title=EVIL, written=EVIL, groups=[EVIL], runs=[run],
        sections=[Section(EVIL, [Chart(EVIL, [(0, curve)], True)])],
        settings=[
            Setting(EVIL, [(EVIL, False)], EVIL, False), Setting(EVIL, [("1", True)], EVIL, True),
        ],
        versions=[(EVIL, [EVIL])],
    )  # fmt: skip
    several = replace(
        evil, groups=[EVIL, EVIL], runs=[run, replace(run, group=1, telemetry=None)],
        sections=[*evil.sections, *evil.sections],
        settings=[Setting(EVIL, [(EVIL, False), (EVIL, True)], EVIL, False)],
        versions=[(EVIL, [EVIL, EVIL])],
    )  # fmt: skip
    for report in (evil, several):
        page = page_of(report)
        markup = Markup(page)
        _assert_refers_to_nothing(page, markup)
        assert markup.text.count(EVIL) > 10 and "<script" not in page


@pytest.mark.parametrize("count", [2, 3])
def test_several_runs_are_shown_side_by_side(count: int) -> None:
    runs = [
        _run(f"run-{i}", group=i, telemetry=None if i else _run().telemetry) for i in range(count)
    ]
    groups = [f"lr={i}" for i in range(count)]
    settings = [Setting("learning_rate", [(str(i), i == 0) for i in range(count)], "0", False)]
    versions = [("numpy", ["2.0"] * count)]
    sections = [Section("CartPole-v1", [])]
    page = page_of(
        _report(runs=runs, groups=groups, settings=settings, versions=versions, sections=sections)
    )
    markup = Markup(page)
    _assert_refers_to_nothing(page, markup)
    assert markup.text.count("run-1") >= 2 and markup.text.count("lr=1") == 3
    verb = "has" if count == 2 else "have"
    assert f"{verb} no telemetry.jsonl" in markup.text
    marked = [a for t, a in markup.elements if t == "tr" and a.get("class") == "differs"]
    bold = [a for t, a in markup.elements if t == "td" and a.get("class") == "changed"]
    assert (len(marked), len(bold)) == (1, count - 1)


def test_unknown_figures_are_mentioned() -> None:
    bare = _run(time_split=None, faults={}, telemetry=None)
    page = page_of(_report(runs=[bare], sections=[Section("x", [])], settings=[], versions=[]))
    text = " ".join(Markup(page).text.split())
    for part in (
        "Its metrics hold no curve yet.", "The metrics do not tell.", "a has no telemetry.jsonl",
        "None.", "config.json does not tell.",
    ):  # fmt: skip
        assert part in text
    unknown = _run(telemetry=telemetry_figures([{"envs": {"steps": [None, 3]}, "workers": [{}]}]))
    page = page_of(_report(runs=[unknown]))
    assert "nan" not in Markup(page).text


def test_the_telemetry_of_many_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "_MOST_DRAWN", 1)
    page = page_of(_report(runs=[_run(f"r{i}") for i in range(3)], sections=[]))
    assert "Telemetry of 2 further runs is left out" in page


def test_charts_of_long_runs_stay_small() -> None:
    x = np.arange(1e5)
    noise = np.random.default_rng(0).normal(size=len(x))
    assert len(curves_chart([(0, Curve("a", [(x, noise)]))])) < 250_000
    assert len(memory_chart(Series(x, np.abs(noise)))) < 40_000
    envs = telemetry_figures(telemetry_rows(1000, 10, 1)).envs  # type: ignore[union-attr]
    assert len(envs_chart(envs)) < 400_000  # type: ignore[arg-type]


def test_a_single_point_is_drawn_as_a_chart() -> None:
    one = np.ones(1)
    assert "<svg" in curves_chart(
        [(0, Curve("a", [(one, one)])), (1, Curve("b", [(one, one)] * 2))]
    )
    assert "<svg" in memory_chart(Series(one, one))
