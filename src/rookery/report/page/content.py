"""The content of a report page, gathered from recorded runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from rookery.common.version import __version__
from rookery.report.comparison import Curve
from rookery.report.figures import (
    RunStatus,
    TimeSplit,
    fault_counts,
    named_faults,
    state_of,
    time_split,
)
from rookery.report.read import RecordedRun, RunGroup, groups_of, word_of
from rookery.report.telemetry import TelemetryFigures, telemetry_in
from rookery.report.units import UNKNOWN, count_text, duration_text, number_text
from rookery.run.algorithms import BUILT_IN
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.jsonl import number_of
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
_OF_ONE_RUN = {"run_dir", "overwrite"}


@dataclass(frozen=True)
class ReportRun:
    """One run of a report.

    Attributes:
        name: short name of the folder.
        path: folder of the run.
        group: number of the run's group.
        state: state of the run.
        facts: main figures by name; all runs have the same names.
        time_split: time by activity during the whole run; None if unknown.
        faults: count of each kind of fault.
        telemetry: statistics from telemetry.jsonl; None if the file has no line.
    """

    name: str
    path: str
    group: int
    state: RunStatus
    facts: Mapping[str, str]
    time_split: TimeSplit | None
    faults: Mapping[str, int]
    telemetry: TelemetryFigures | None


@dataclass(frozen=True)
class Chart:
    """Curves of one metric.

    Attributes:
        title: name of the metric.
        curves: number of each group, and its curve.
        is_main: True if the chart is drawn large.
    """

    title: str
    curves: Sequence[tuple[int, Curve]]
    is_main: bool = False


@dataclass(frozen=True)
class Section:
    """The charts of one env."""

    env: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Setting:
    """A setting of the runs.

    Attributes:
        name: name of the setting.
        values: for each group, the value as text, and whether it is the default.
        default: default value as text; None if there is none, or if it differs between groups.
        is_same: True if all groups have the same value.
    """

    name: str
    values: Sequence[tuple[str, bool]]
    default: str | None
    is_same: bool

    @property
    def is_plain(self) -> bool:
        """True if all groups have the default value."""
        return self.is_same and all(is_default for _, is_default in self.values)


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        title: title of the page.
        written: a sentence with date and version of rookery.
        groups: label of each group.
        runs: all runs, in the order of their groups.
        sections: charts of each env.
        settings: all settings: first those that differ, then those that are not defaults.
        versions: name of each package or machine property, and its value for each group.
    """

    title: str
    written: str
    groups: Sequence[str]
    runs: Sequence[ReportRun]
    sections: Sequence[Section]
    settings: Sequence[Setting]
    versions: Sequence[tuple[str, Sequence[str]]]


def report_on(runs: Sequence[RecordedRun], by: Sequence[str] = ()) -> Report:
    """Gather the content of a report.

    Args:
        runs: runs to report on, at least one.
        by: names of settings; runs with equal values of these form a group, see `groups_of`.

    Raises:
        ConfigError: a file of a run is invalid, or no run has a setting of that name.
    """
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
    return Section(env, [chart for chart in charts if chart is not None][:_MOST_CHARTS])


def _is_curve(name: str) -> bool:
    return name not in _NO_CURVES and not name.startswith(_SHOWN_ELSEWHERE)


def _chart(metric: str, groups: Sequence[tuple[int, RunGroup]]) -> Chart | None:
    is_return = metric == _RETURN
    curves = []
    for number, group in groups:
        runs = [series for run in group.runs if len((series := run.series(metric, "step")).x)]
        evaluations = group.evaluations("step") if is_return else []
        if runs:
            curves.append((number, Curve(group.label, runs, evaluations)))
    values = [y for _, curve in curves for _, y in curve.runs]
    if not values or (np.ptp(np.concatenate(values)) == 0 and not is_return):
        return None
    return Chart(metric, curves, is_main=is_return)


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
    of_algo = BUILT_IN[algo][0]().to_dict() if algo in BUILT_IN else {}
    of_envs: dict[str, Any] = {"wrappers": []}
    defaults: dict[str, Any] = json.loads(json.dumps({**of_algo, **of_envs, **known}))
    return defaults


def _versions(groups: Sequence[RunGroup]) -> list[tuple[str, list[str]]]:
    """Return versions and machine from config.json, by group."""
    found = [[_versions_of(run) for run in group.runs] for group in groups]
    names = dict.fromkeys(name for group in found for each in group for name in each)
    return [
        (name, [", ".join(dict.fromkeys(e.get(name, UNKNOWN) for e in group)) for group in found])
        for name in names
    ]


def _versions_of(run: RecordedRun) -> dict[str, str]:
    config = RunDirectory(run.path).read_config()
    parts = [config.get(name) for name in ("versions", "machine")]
    return {
        str(name): word_of(value)
        for part in parts
        if isinstance(part, dict)
        for name, value in part.items()
    }
