"""The data that a report page shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.report.comparison import Curve
from rookery.report.figures import RunState, TelemetryFigures, TimeSplit


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
    state: RunState
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
