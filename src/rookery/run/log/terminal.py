"""Metrics for the person who waits: a progress bar, or plain lines where there is no terminal."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rookery.errors import MissingExtra
from rookery.run.log.sink import Sink

_FILE_COLUMNS = 120  # of a table that goes into a file or a pipe


def terminal_sink(total_steps: int, stream: TextIO | None = None) -> Sink:
    """Choose by whether ``stream`` (standard error unless told) is a terminal."""
    stream = stream or sys.stderr
    return ProgressBar(total_steps) if stream.isatty() else PlainLines(total_steps, stream)


class PlainLines(Sink):
    """A line every ``interval_s`` seconds, and one at the end."""

    def __init__(self, total_steps: int, stream: TextIO, interval_s: float = 5.0) -> None:
        self._total_steps = total_steps
        self._stream = stream
        self._interval_s = interval_s
        self._next = time.monotonic() + interval_s
        self._last = ""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._last = f"{step}/{self._total_steps} steps  {_summary(metrics)}"
        if time.monotonic() >= self._next:
            self._print()

    def close(self) -> None:
        self._print()

    def _print(self) -> None:
        if self._last:
            print(self._last, file=self._stream, flush=True)
        self._last = ""
        self._next = time.monotonic() + self._interval_s


class ProgressBar(Sink):
    """A bar with the time left and the latest return, on standard error."""

    def __init__(self, total_steps: int) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        except ImportError as error:
            raise MissingExtra("the progress bar needs: pip install 'rookery[train]'") from error
        self._progress = Progress(
            TextColumn("{task.percentage:>3.0f}%"),
            BarColumn(bar_width=30),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[summary]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("", total=total_steps, summary="")
        self._progress.start()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._progress.update(self._task, completed=step, summary=_summary(metrics))

    def close(self) -> None:
        self._progress.stop()


def _summary(metrics: Mapping[str, float]) -> str:
    speed = f"{metrics.get('steps_per_second', math.nan):,.0f} steps/s"
    mean = metrics.get("episode_return_mean")
    return speed if mean is None else f"return {mean:.1f}  {speed}"


class Counter:
    """How many of a number of things are done: a bar on a terminal, else a line for each.

    Args:
        total: how many there are.
        what: what they are, such as ``"trials"``.
        stream: standard error unless told.
    """

    def __init__(self, total: int, what: str, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._total, self._what, self._done = max(total, 1), what, 0
        self._progress: Any = None

    def __enter__(self) -> Counter:
        if self._stream.isatty():
            rich = _rich("progress")
            console = _rich("console").Console(file=self._stream)
            columns = (
                rich.MofNCompleteColumn(), rich.TextColumn(self._what), rich.BarColumn(30),
                rich.TimeRemainingColumn(), rich.TextColumn("{task.fields[now]}", markup=False),
            )  # fmt: skip
            self._progress = rich.Progress(*columns, console=console)
            self._task = self._progress.add_task("", total=self._total, now="")
            self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def doing(self, text: str) -> None:
        """Say beside the bar what is under way; nothing where there is no bar."""
        if self._progress is not None:
            self._progress.update(self._task, now=text)

    def done(self, text: str = "") -> None:
        """Count one more, and print a line about it, if there is anything to say.

        Where there is no bar, each tenth of the whole is a line anyway.
        """
        self._done += 1
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)
            if text:
                self._progress.console.print(text, markup=False, highlight=False)
        elif text or self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            line = f"{self._done}/{self._total} {self._what}  {text}".rstrip()
            print(line, file=self._stream, flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table on standard output; the first column and the last stand left, others right.

    Raises:
        MissingExtra: rich is not installed.
    """
    box = _rich("box")
    table = _rich("table").Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for place, name in enumerate(columns):
        is_outer = place in (0, len(columns) - 1)
        table.add_column(name, justify="left" if is_outer else "right", no_wrap=not is_outer)
    text = _rich("text").Text
    for row in rows:
        table.add_row(*map(text, row))
    width = None if sys.stdout.isatty() else _FILE_COLUMNS
    console = _rich("console").Console(file=sys.stdout, width=width)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().splitlines()
    print("\n".join(line.rstrip() for line in lines), flush=True)


def require_tables() -> None:
    """Complain where `print_table` could not print, before what it is to print is measured.

    Raises:
        MissingExtra: rich is not installed.
    """
    _rich("table")


def _rich(module: str) -> Any:
    """A module of rich."""
    try:
        return importlib.import_module(f"rich.{module}")
    except ImportError as error:
        raise MissingExtra("tables and bars need rich: pip install 'rookery[train]'") from error
