"""The panels of the terminal view of a run.

Each panel is a function of the figures, the width in characters, and whether the terminal has ASCII
only. It returns None if there is nothing to show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from rookery.errors import MissingExtra
from rookery.report.figures import Floats, Series, TimeSplit
from rookery.report.live import RunFigures
from rookery.report.telemetry import ProcessSeries, TelemetryFigures
from rookery.report.text_curve import bar, curve_lines, sparkline
from rookery.report.units import (
    bytes_text,
    count_text,
    duration_text,
    interval_text,
    number_text,
    percent_text,
)

try:
    from rich.console import Group, RenderableType
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingExtra("the terminal view needs: pip install 'rookery[train]'") from error

_CURVE_LINES = 6
_MOST_ENVS, _MOST_PROCESSES = 5, 12
_PART_COLORS = {
    "policy": "magenta", "envs": "blue", "waiting": "yellow", "rollouts": "cyan",
    "learning": "green", "other": "white",
}  # fmt: skip
_BALANCE = 1.25  # the ratio of busiest to mean worker is highlighted from here on


def returns(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the panel of recent return, evaluations and learning curve."""
    if not len(figures.returns.x):
        if not figures.step:
            return None
        return _panel("Return", Text("no episode has ended yet", style="dim"))
    y = figures.returns.y
    latest = [
        Text.assemble((number_text(y[-1]), "bold"), "  mean of recent episodes"),
        Text(f"{count_text(figures.episodes)} ended", style="dim"),
    ]
    lines = flow(latest, width - 4)
    if figures.evaluations:
        _, mean, std = figures.evaluations[-1]
        best = max(each[1] for each in figures.evaluations)
        value = f"{number_text(mean)} ± {number_text(std)}"
        count = len(figures.evaluations)
        parts = [
            Text.assemble((value, "bold"), "  last evaluation"),
            Text(f"best {number_text(best)} of {count}", style="dim"),
        ]
        lines += flow(parts, width - 4)
    return _panel("Return", Group(*lines, *_curve(figures.returns, width - 4, ascii_only)))


def printable(text: str) -> str:
    """Escape control characters, with which a file could change colours or clear the screen."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def flow(parts: Iterable[Text], width: int) -> list[Text]:
    """Return lines with as many parts in each as fit."""
    lines: list[Text] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1].append("   ").append_text(part)
        else:
            lines.append(Text(overflow="ellipsis", no_wrap=True).append_text(part))
    return lines


def _curve(series: Series, width: int, ascii_only: bool) -> list[Text]:
    """Return the lines of a curve with labelled ends of the axes."""
    x, y = series
    labels = number_text(y.max()), number_text(y.min())
    margin = max(map(len, labels)) + 2
    drawn = curve_lines(x, y, max(width - margin, 8), _CURVE_LINES, ascii_only)
    names = [labels[0], *[""] * (len(drawn) - 2), labels[1] if y.max() > y.min() else ""]
    edge = "|" if ascii_only else "│"
    lines = [
        Text.assemble((f"{name:>{margin - 2}} {edge}", "dim"), (line, "cyan"))
        for name, line in zip(names, drawn, strict=True)
    ]
    ends = f"{number_text(x[0])} steps", number_text(x[-1])
    between = " " * max(width - margin - len(ends[0]) - len(ends[1]), 1)
    return [*lines, Text(" " * margin + ends[0] + between + ends[1], style="dim")]


def time_and_speed(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the panel of speed and time."""
    split = figures.time_split
    if split is None:
        return None
    when = "at its end" if figures.state.is_over else "now"
    speed = [
        Text.assemble((number_text(figures.speed), "bold"), f" steps/s {when}"),
        Text(f"{number_text(figures.speed_mean)} in the mean", style="dim"),
    ]
    room = min(width - 7 - sum(map(len, speed)) - 3, 40)
    if room >= 8:
        speed.append(Text(sparkline(*figures.speeds, room, ascii_only), style="dim cyan"))
    parts: list[RenderableType] = [*flow(speed, width - 4)]
    parts.append(_parts(split, width - 4, ascii_only))
    if figures.lag is not None:
        mean, largest = figures.lag
        lag = [
            Text(f"policy lag {number_text(mean)} in the mean"),
            Text(f"{number_text(largest)} updates at most"),
        ]
        parts += flow(lag, width - 4)
    return _panel(f"Speed and time, last {duration_text(split.seconds)}", Group(*parts))


def _parts(split: TimeSplit, width: int, ascii_only: bool) -> Table:
    table = Table.grid(padding=(0, 1))
    labels = [*split.parts, *(f"({name})" for name in split.beside)]
    room = max(width - max(map(len, labels)) - 7, 4)
    rows = [(name, name, seconds) for name, seconds in split.parts.items()]
    rows += [(name, f"({name})", seconds) for name, seconds in split.beside.items()]
    for name, label, seconds in rows:
        share = seconds / split.seconds
        color = _PART_COLORS.get(name, "white")
        table.add_row(
            label,
            Text(bar(share, room, ascii_only), style=color),
            Text(f"{percent_text(share):>5}"),
        )
    if split.beside:
        table.add_row("", Text("in brackets: workers, at the same time", style="dim"), "")
    return table


def processes(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the panel of load, memory and restarts of workers and caller."""
    telemetry = figures.telemetry
    if telemetry is None:
        if not figures.step:
            return None
        yet = "" if figures.state.is_over else " yet"
        text = f"no telemetry.jsonl{yet}: no data about workers, envs and memory"
        return _panel("Workers", Text(text, style="dim"))
    if not telemetry.processes:
        return None
    listed = telemetry.processes[:_MOST_PROCESSES]
    table = _table(
        [
            ("", 0, "left", [Text(_process_name(each)) for each in listed]),
            ("envs", 50, "left", [Text(each.envs, style="dim") for each in listed]),
            (
                "busy",
                0,
                "left",
                [_busy(each, 10 if width >= 68 else 5, ascii_only) for each in listed],
            ),
            ("cpu", 64, "right", [Text(percent_text(each.cpu_percent / 100)) for each in listed]),
            ("memory", 0, "right", [Text(bytes_text(each.rss_bytes)) for each in listed]),
            ("per hour", 56, "right", [_growth(each) for each in listed]),
            ("restarts", 44, "right", [_restarts(each) for each in listed]),
        ],
        width,
    )
    lines: list[RenderableType] = [table]
    if len(telemetry.processes) > _MOST_PROCESSES:
        more = len(telemetry.processes) - _MOST_PROCESSES
        lines.append(Text(f"and {more} more", style="dim"))
    lines += _summary_of_processes(telemetry, width, ascii_only)
    return _panel("Workers", Group(*lines))


Column = tuple[str, int, Literal["left", "right"], list[Text]]


def _table(columns: Iterable[Column], width: int) -> Table:
    """Return a table with the columns that fit in a panel.

    Args:
        columns: name, least width of a panel that shows the column, alignment, and cells.
        width: width of the panel in characters.
    """
    table = Table.grid(padding=(0, 2 if width >= 76 else 1), expand=True)
    fitting = [column for column in columns if column[1] <= width]
    for _, _, side, _ in fitting:
        table.add_column(justify=side, no_wrap=True)
    table.add_row(*(Text(name, style="dim") for name, *_ in fitting))
    for row in zip(*(cells for *_, cells in fitting), strict=True):
        table.add_row(*row)
    return table


def _process_name(process: ProcessSeries) -> str:
    name = printable(process.name)
    return f"{name}*" if process.in_caller else name


def _busy(process: ProcessSeries, room: int, ascii_only: bool) -> Text:
    share = process.busy_share
    if math.isnan(share):
        return Text("")
    return Text.assemble((bar(share, room, ascii_only), "blue"), f" {percent_text(share):>5}")


def _growth(process: ProcessSeries) -> Text:
    return Text(bytes_text(process.rss_bytes_per_hour, signed=True), style="dim")


def _restarts(process: ProcessSeries) -> Text:
    return Text(str(process.restarts), style="bold red" if process.restarts else "dim")


def _summary_of_processes(telemetry: TelemetryFigures, width: int, ascii_only: bool) -> list[Text]:
    lines: list[Text] = []
    if any(each.in_caller for each in telemetry.processes):
        lines.append(Text("* in the caller's process, with its memory", style="dim"))
    if len(telemetry.memory.x):
        size = bytes_text(telemetry.memory.y[-1])
        memory = [Text.assemble("memory ", (size, "bold"), " in all")]
        if not math.isnan(telemetry.memory_per_hour):
            growth = bytes_text(telemetry.memory_per_hour, signed=True)
            memory.append(Text(f"{growth} per hour"))
        room = min(width - 10 - sum(map(len, memory)), 24)
        if room >= 8:
            line = sparkline(*telemetry.memory, room, ascii_only)
            memory.append(Text(line, style="dim cyan"))
        lines += flow(memory, width - 4)
    if not math.isnan(telemetry.balance):
        style = "bold yellow" if telemetry.balance >= _BALANCE else "bold"
        times = (f"{telemetry.balance:.2f} times", style)
        lines += flow([Text.assemble("busiest worker: ", times, " the mean's load")], width - 4)
    return lines


def envs(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the panel of the slowest envs."""
    known = figures.telemetry.envs if figures.telemetry is not None else None
    if known is None:
        return None
    places = known.slowest(_MOST_ENVS)

    def _times(column: Floats) -> list[Text]:
        return [Text(interval_text(column[place])) for place in places]

    shares = [Text(percent_text(known.straggler_share[place])) for place in places]
    workers = [Text(number_text(known.worker[place]), style="dim") for place in places]
    table = _table(
        [
            ("env", 0, "right", [Text(str(place)) for place in places]),
            ("worker", 56, "right", workers),
            ("step", 0, "right", _times(known.step_mean_s)),
            ("median", 56, "right", _times(known.step_p50_s)),
            ("99 %", 0, "right", _times(known.step_p99_s)),
            ("reset", 64, "right", _times(known.reset_mean_s)),
            ("last to end", 40, "right", shares),
        ],
        width,
    )
    count = len(known.steps)
    title = f"Envs, the slowest {_MOST_ENVS} of {count}" if count > _MOST_ENVS else "Envs"
    return _panel(title, table)


def faults(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the panel of faults."""
    if not figures.step:
        return None
    known = figures.telemetry.processes if figures.telemetry is not None else ()
    causes = [printable(f"{each.name}: {cause}") for each in known for cause in each.restart_causes]
    if not figures.faults and not causes:
        return _panel("Faults", Text("none", style="dim"))
    lines = [
        Text.assemble(f"{name}: ", (count_text(count), "bold red"))
        for name, count in figures.faults.items()
    ]
    lines += [Text(cause, overflow="ellipsis", no_wrap=True, style="dim") for cause in causes[-3:]]
    return _panel("Faults", Group(*lines))


def notes(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType | None:
    """Return the notes as lines of text."""
    return (
        Group(*(Text(printable(note), style="yellow") for note in figures.notes))
        if figures.notes
        else None
    )


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(
        content, title=Text(title, style="bold"), title_align="left", border_style="bright_black"
    )
