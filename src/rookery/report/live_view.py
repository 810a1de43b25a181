"""The terminal view of a run, as a rich renderable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rookery.errors import MissingExtra
from rookery.report.live import RunFigures
from rookery.report.live_panels import (
    envs,
    faults,
    flow,
    notes,
    printable,
    processes,
    returns,
    time_and_speed,
)
from rookery.report.units import duration_text, number_text

try:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingExtra("the terminal view needs: pip install 'rookery[train]'") from error

_TWO_COLUMNS = 104  # least width in characters of a view with two columns
_WIDEST = 160
_COLORS = {"starting": "yellow", "running": "green", "finished": "cyan", "stopped": "yellow"}


@dataclass(frozen=True)
class LiveView:
    """The view of a run, as wide as the terminal.

    Panels that do not fit are left out, the least important ones first.

    Attributes:
        figures: figures of the run.
        height: largest number of lines; None is unlimited.
        footer: text of the last line; empty for none.
    """

    figures: RunFigures
    height: int | None = None
    footer: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, _WIDEST)
        options = options.update(width=width, height=None)
        head = console.render_lines(_head(self.figures, width, options.ascii_only), options)
        foot = console.render_lines(Text(self.footer, style="dim"), options) if self.footer else []
        room = None if self.height is None else max(self.height - len(head) - len(foot), 0)
        body = _columns(self.figures, console, options, room)
        lines = [*head, *body, *foot]
        for line in lines if self.height is None else lines[: self.height]:
            yield from (_in_ascii(line) if options.ascii_only else line)
            yield Segment.line()


# Each replacement has one character, so that the layout stays.
_ASCII = str.maketrans({"±": "~", "–": "-", "µ": "u"})


def _in_ascii(line: list[Segment]) -> list[Segment]:
    return [Segment(each.text.translate(_ASCII), each.style, each.control) for each in line]


Lines = list[list[Segment]]
Block = Callable[[RunFigures, int, bool], RenderableType | None]


def _columns(
    figures: RunFigures, console: Console, options: ConsoleOptions, room: int | None
) -> Lines:
    """Return the panels in one column, or in two if the terminal is wide enough."""
    if options.max_width < _TWO_COLUMNS:
        blocks = (returns, time_and_speed, processes, faults, envs, notes)
        return _stacked(blocks, figures, console, options, room)
    left_width = options.max_width // 2
    widths = left_width, options.max_width - left_width
    left, right = (
        _stacked(blocks, figures, console, options.update(width=width), room)
        for blocks, width in zip(
            ((returns, time_and_speed, faults, notes), (processes, envs)), widths, strict=True
        )
    )
    if not right:
        return _stacked((returns, time_and_speed, faults, notes), figures, console, options, room)
    count = max(len(left), len(right))
    for column, width in zip((left, right), widths, strict=True):
        column += [[Segment(" " * width)] for _ in range(count - len(column))]
    return [one + other for one, other in zip(left, right, strict=True)]


def _stacked(
    blocks: Iterable[Block],
    figures: RunFigures,
    console: Console,
    options: ConsoleOptions,
    room: int | None,
) -> Lines:
    lines: Lines = []
    for block in blocks:
        rendered = block(figures, options.max_width, options.ascii_only)
        if rendered is None:
            continue
        more = console.render_lines(rendered, options)
        if room is None or len(lines) + len(more) <= room:
            lines += more
    return lines


def _head(figures: RunFigures, width: int, ascii_only: bool) -> RenderableType:
    """Return title, state and progress."""
    state = figures.state
    color = _COLORS.get(state.kind, "red")
    title = Text(printable(figures.title), style="bold", overflow="ellipsis", no_wrap=True)
    mark = Text(f"{'*' if ascii_only else '●'} {state.text}", style=color)
    if len(title) + len(mark) + 4 <= width:
        first = Table.grid(expand=True, padding=(0, 1))
        first.add_column(ratio=1)
        first.add_column(justify="right")
        first.add_row(title, mark)
        top: list[RenderableType] = [first]
    else:
        top = [title, mark]
    if figures.step:
        top += [*_progress(figures, width, color, ascii_only)]
    return Group(*top)


def _progress(
    figures: RunFigures, width: int, color: str, ascii_only: bool
) -> Iterable[RenderableType]:
    total = figures.total_steps
    if total:
        share = min(figures.step / total, 1.0)
        place = round(share * (width - 7))
        signs = ("#", ".") if ascii_only else ("━", "━")
        line = Text(signs[0] * place, style=color)
        line.append(signs[1] * (width - 7 - place), style="bright_black")
        if not ascii_only and place < width - 7:  # without colors, only the sign shows the rest
            line = Text("━" * place, style=color)
            line.append("╌" * (width - 7 - place), style="bright_black")
        line.append(f" {int(100 * share):>4} %", style="bold")
        yield line
    of = f" of {number_text(total)}" if total else ""
    parts = [
        f"{number_text(figures.step)}{of} steps",
        f"{duration_text(figures.seconds)} trained",
    ]
    if figures.left_s is not None:
        parts.append(f"{duration_text(figures.left_s)} left")
    if figures.age_s is not None and figures.state.kind == "running":
        parts.append(f"updated {duration_text(figures.age_s)} ago")
    yield from flow(map(Text, parts), width)
