"""The content of a report, gathered from recorded runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rookery.report.comparison import Curve
from rookery.report.figures import Series
from rookery.report.live_history import telemetry_in
from rookery.report.page.content import Chart, Report, ReportRun, Section, Setting
from rookery.report.recorded import RecordedRun
from rookery.report.run_figures import (
    fault_counts,
    named_faults,
    time_split,
)
from rookery.report.run_groups import RunGroup, groups_of, word_of
from rookery.report.run_state import state_of
from rookery.report.units import UNKNOWN, count_text, duration_text, number_text
from rookery.run.algorithms import BUILT_IN
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.evaluation_log import number_of
from rookery.run.settings import TrainSettings

_RETURN = "episode_return_mean"
# Metrics without a chart: the page shows them elsewhere, or a curve of them has no use.
_NO_CURVES = {
    "step", "seconds", "episodes", "epochs", "eval_return_mean", "eval_return_std",
    "collect_s", "policy_s", "env_s", "wait_s", "learn_s", "worker_restarts",
    "lost_transitions", "nonfinite_transitions", "skipped_gradient_steps", "gradient_steps",
}  # fmt: skip
_SHOWN_ELSEWHERE = "telemetry/"
_MOST_CHARTS = 30  # of an env
_MOST_DRAWN = 1e100
_OF_ONE_RUN = {"run_dir", "overwrite"}


def report_on(runs: Sequence[RecordedRun], by: Sequence[str] = ()) -> Report:
    """Gather the content of a report.

    Args:
        runs: runs to report on, at least one.
        by: names of settings; runs with equal values of these form a group, see `groups_of`.

    Raises:
        ConfigError: a file of a run is invalid, or no run has a setting of that name.
    """
    from rookery import __version__

    groups = groups_of(runs, by)
    envs = list(dict.fromkeys(group.env for group in groups))
    labels = [f"{group.env}: {group.label}" if len(envs) > 1 else group.label for group in groups]
    names = _names(runs)
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z")
    return Report(
        title=_title(runs, envs),
        written=f"Written on {now} by rookery {__version__}.",
        groups=labels,
        runs=[
            _run(run, i, names[run.path]) for i, group in enumerate(groups) for run in group.runs
        ],
        sections=[_section(env, groups) for env in envs],
        settings=_settings(groups),
        versions=_versions(groups),
    )


def _title(runs: Sequence[RecordedRun], envs: Sequence[str]) -> str:
    first = runs[0].settings
    if len(runs) == 1:
        return f"{runs[0].env}, {first.get('algo')}, seed {first.get('seed')}"
    algos = dict.fromkeys(str(run.settings.get("algo")) for run in runs)
    return f"{', '.join(envs)}: {len(runs)} runs of {', '.join(algos)}"


def _names(runs: Sequence[RecordedRun]) -> dict[Path, str]:
    """Return a name for each folder: its last part, or the path if names collide."""
    short = Counter(run.path.resolve().name for run in runs)
    return {
        run.path: name if short[name := run.path.resolve().name] == 1 else str(run.path)
        for run in runs
    }


def _run(run: RecordedRun, group: int, name: str) -> ReportRun:
    rows = run.rows
    last = run.series("seconds", "step")
    step = int(last.x[-1]) if len(last.x) else 0
    total = number_of(run.settings.get("total_steps"))
    of = f" / {number_text(total)}" if total is not None and step < total else ""
    return ReportRun(
        name=name,
        path=str(run.path),
        group=group,
        state=state_of(RunDirectory(run.path), run.settings, step, run.evaluations),
        facts={
            "steps": f"{number_text(step)}{of}",
            "time": duration_text(float(last.y[-1]) if len(last.y) else None),
            "steps/s": _latest(run, "steps_per_second"),
            "episodes": count_text(_number(run, "episodes")),
            "return": _latest(run, _RETURN),
            **_evaluation_facts(run),
        },
        time_split=time_split([{"seconds": 0.0}, *rows]),
        faults=named_faults(fault_counts(rows)),
        telemetry=telemetry_in(RunDirectory(run.path).telemetry),
    )


def _evaluation_facts(run: RecordedRun) -> dict[str, str]:
    if not run.evaluations:
        return {"last evaluation": UNKNOWN, "best evaluation": UNKNOWN}
    _, mean, std = run.evaluations[-1]
    _, best, _ = max(run.evaluations, key=lambda each: each[1])
    return {
        "last evaluation": f"{number_text(mean)} ± {number_text(std)}",
        "best evaluation": number_text(best),
    }


def _number(run: RecordedRun, metric: str) -> float | None:
    values = run.series(metric, "step").y
    return float(values[-1]) if len(values) else None


def _latest(run: RecordedRun, metric: str) -> str:
    return number_text(_number(run, metric))


def _section(env: str, groups: Sequence[RunGroup]) -> Section:
    """Return the charts of an env: returns, and all metrics that are not constant."""
    numbered = [(i, group) for i, group in enumerate(groups) if group.env == env]
    rows = [row for _, group in numbered for run in group.runs for row in run.rows]
    names = dict.fromkeys(name for row in rows for name in row)
    names = dict.fromkeys([_RETURN, *filter(_is_curve, names)])
    charts = [_chart(name, numbered) for name in names]
    shown = [chart for chart in charts if chart is not None]
    return Section(env, shown[:_MOST_CHARTS])


def _is_curve(name: str) -> bool:
    return name not in _NO_CURVES and not name.startswith(_SHOWN_ELSEWHERE)


def _chart(metric: str, groups: Sequence[tuple[int, RunGroup]]) -> Chart | None:
    is_return = metric == _RETURN
    curves = []
    for number, group in groups:
        runs = [series for run in group.runs if len((series := _drawable(run, metric)).x)]
        evaluations = group.evaluations("step") if is_return else []
        if runs:
            curves.append((number, Curve(group.label, runs, evaluations)))
    values = [y for _, curve in curves for _, y in curve.runs]
    if not values or (np.ptp(np.concatenate(values)) == 0 and not is_return):
        return None
    return Chart(metric, curves, is_main=is_return)


def _drawable(run: RecordedRun, metric: str) -> Series:
    """Return a metric over env steps, clipped so that squares of its values are finite."""
    x, y = run.series(metric, "step")
    return Series(x, np.clip(y, -_MOST_DRAWN, _MOST_DRAWN))


def _settings(groups: Sequence[RunGroup]) -> list[Setting]:
    """Return all settings: first those that differ, then those that are not defaults."""
    runs = [run for group in groups for run in group.runs]
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in _OF_ONE_RUN)
    settings = [_setting(name, groups) for name in names]
    return sorted(settings, key=lambda each: (each.is_same, each.is_plain))


def _setting(name: str, groups: Sequence[RunGroup]) -> Setting:
    values, defaults = [], []
    for group in groups:
        known = _defaults(str(group.runs[0].settings.get("algo")))
        default = word_of(known[name]) if name in known else None
        words = [word_of(e.settings[name]) for e in group.runs if name in e.settings]
        # A setting that this group lacks (other algorithm, older version) is not highlighted.
        is_default = not words or set(words) == {default}
        values.append((", ".join(dict.fromkeys(words)) or UNKNOWN, is_default))
        if words:
            defaults.append(default)
    is_same = name == "seed" or len({text for text, _ in values}) == 1
    return Setting(name, values, defaults[0] if len(set(defaults)) == 1 else None, is_same)


def _defaults(algo: str) -> dict[str, Any]:
    """Return the default settings of an algorithm, as config.json would store them."""
    known: Mapping[str, Any] = asdict(TrainSettings())
    own = BUILT_IN[algo][0]().to_dict() if algo in BUILT_IN else {}
    of_envs: dict[str, Any] = {"wrappers": []}
    defaults: dict[str, Any] = json.loads(json.dumps({**own, **of_envs, **known}))
    return defaults


def _versions(groups: Sequence[RunGroup]) -> list[tuple[str, list[str]]]:
    """Return versions and machine from config.json, by group."""
    told = [[_told(run) for run in group.runs] for group in groups]
    names = dict.fromkeys(name for group in told for each in group for name in each)
    return [
        (name, [", ".join(dict.fromkeys(e.get(name, UNKNOWN) for e in group)) for group in told])
        for name in names
    ]


def _told(run: RecordedRun) -> dict[str, str]:
    config = RunDirectory(run.path).read_config()
    parts = [config.get(name) for name in ("versions", "machine")]
    return {
        str(name): word_of(value)
        for part in parts
        if isinstance(part, dict)
        for name, value in part.items()
    }
