"""Rendering of a report as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.errors import MissingExtra
from rookery.report.page.charts import LARGE, curves_chart, envs_chart, memory_chart
from rookery.report.page.content import Report, ReportRun, Section
from rookery.report.units import (
    bytes_text,
    count_text,
    duration_text,
    interval_text,
    percent_text,
)

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_ENVS = 128  # in a table
_MOST_DRAWN = 12  # runs with a telemetry section
_CURVES_TEXT = (
    "Curves are running means; for several runs, the mean of these. The band is the standard "
    "deviation over the runs, or, for a single run, within the window. The faint line shows the "
    "logged values. Points with bars are evaluations: mean and standard deviation."
)


def page_of(report: Report) -> str:
    """Return a report as one self-contained HTML document.

    All text of the report is escaped.

    Raises:
        MissingExtra: jinja2 or matplotlib is not installed.
    """
    environment = _environment()
    one = report.runs[0] if len(report.runs) == 1 else None
    splits = [run for run in report.runs if run.time_split is not None]
    measured = [run for run in report.runs if run.telemetry is not None]
    page = environment.get_template("page.html").render(
        report=report,
        one=one,
        style=_safe(_STYLE.read_text(encoding="utf-8")),
        sections=[_drawn(section) for section in report.sections],
        curves_text=_CURVES_TEXT,
        splits=splits,
        parts=dict.fromkeys(name for run in splits for name in _parts(run)),
        telemetry=[_with_charts(run) for run in measured[:_MOST_DRAWN]],
        unmeasured=_unmeasured([run.name for run in report.runs if run.telemetry is None]),
        num_left_out=len(measured[_MOST_DRAWN:]),
        most_envs=_MOST_ENVS,
        faulty=[(run, causes) for run in report.runs if (causes := _causes(run)) or run.faults],
        settings_text=_settings_text(report),
        changed=[each for each in report.settings if not each.is_plain],
        unchanged=[each for each in report.settings if each.is_plain],
    )
    return page + "\n"


_FOLDER = Path(__file__).parent
_STYLE = _FOLDER / "style.css"


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtra("the report needs jinja2: pip install 'rookery[train]'") from error
    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "percent": percent_text,
        "bytes": bytes_text,
        "growth": lambda size: bytes_text(size, signed=True),
        "count": count_text,
        "interval": interval_text,
        "duration": duration_text,
    }
    return environment


def _safe(markup: str) -> Any:
    """Mark trusted markup so that it is not escaped."""
    from markupsafe import Markup

    return Markup(markup)


def _drawn(section: Section) -> dict[str, Any]:
    """Return title, small chart and, for the main chart, large chart of each metric."""
    charts = [
        (
            chart.title,
            _safe(curves_chart(chart.curves)),
            _safe(curves_chart(chart.curves, LARGE)) if chart.is_main else None,
        )
        for chart in section.charts
    ]
    return {"env": section.env, "charts": charts}


def _with_charts(run: ReportRun) -> tuple[ReportRun, Any, Any]:
    telemetry = run.telemetry
    assert telemetry is not None
    envs, memory = telemetry.envs, telemetry.memory
    return (
        run,
        None if envs is None else _safe(envs_chart(envs)),
        _safe(memory_chart(memory)) if len(memory.x) else None,
    )


def _unmeasured(names: Sequence[str]) -> str:
    """Return a sentence that names the runs without telemetry; empty if all have it."""
    if not names:
        return ""
    verb, whose = ("have", "their") if len(names) > 1 else ("has", "its")
    nothing = f"{whose} envs, workers and memory are unknown"
    return f"{', '.join(names)} {verb} no telemetry.jsonl: {nothing}."


def _parts(run: ReportRun) -> Sequence[str]:
    return list(run.time_split.parts) if run.time_split is not None else []


def _causes(run: ReportRun) -> list[str]:
    processes = run.telemetry.processes if run.telemetry is not None else ()
    return [f"{each.name}: {cause}" for each in processes for cause in each.restart_causes]


def _settings_text(report: Report) -> str:
    text = "Settings that are not the defaults are bold."
    if len(report.groups) > 1:
        text += " Settings that differ between the groups are marked."
    return text
