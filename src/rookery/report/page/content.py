"""What a page about runs shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rookery.report.comparison import Curve
from rookery.report.figures import RunState, TelemetryFigures, TimeSplit


@dataclass(frozen=True)
class ReportRun:
    """One of the runs.

    Attributes:
        name: short, of its folder.
        path: its folder.
        group: number of the group that it belongs to.
        state: how it stands.
        facts: what is said of it first, by name; the same names for all runs.
        time_split: over the whole run; None where its metrics do not tell.
        faults: counts by name.
        telemetry: None where there is none.
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
        curves: number of the group, and its runs.
        is_main: whether it is drawn large.
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
        name: of it.
        values: of each group, in words, and whether it is the default.
        default: in words; None where there is none, or groups have different ones.
        is_same: whether all groups have the same value.
    """

    name: str
    values: Sequence[tuple[str, bool]]
    default: str | None
    is_same: bool

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to see: all groups have the same value, the default."""
        return self.is_same and all(is_default for _, is_default in self.values)


@dataclass(frozen=True)
class Report:
    """A page about runs.

    Attributes:
        title: of the page.
        written: when and by which version, in words.
        groups: what each is called.
        runs: in the order of their groups.
        sections: one for each env.
        settings: those that are worth a look first.
        versions: name, and the version of each group, in words.
    """

    title: str
    written: str
    groups: Sequence[str]
    runs: Sequence[ReportRun]
    sections: Sequence[Section]
    settings: Sequence[Setting]
    versions: Sequence[tuple[str, Sequence[str]]]
