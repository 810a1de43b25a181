"""Counters and tables in the terminal, for commands that are not training runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rookery.errors import MissingExtra

_FILE_COLUMNS = 120  # width of a table that is written to a file or pipe


class Counter:
    """A progress bar over items, or lines if the stream is not a terminal.

    Args:
        total: number of items.
        what: name of the items, such as ``"trials"``.
        stream: stream to write to; None is standard error.
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
        """Show the current activity beside the bar; without a bar, do nothing."""
        if self._progress is not None:
            self._progress.update(self._task, now=text)

    def done(self, text: str = "") -> None:
        """Count one item, and print ``text`` if it is not empty.

        Without a bar, a line is also printed after each tenth of the items.
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
    """Print a table on standard output.

    The first and last column are left-aligned, the others right-aligned.

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
    """Raise early, before a long measurement, if `print_table` cannot print.

    Raises:
        MissingExtra: rich is not installed.
    """
    _rich("table")


def _rich(module: str) -> Any:
    """Import a module of rich."""
    try:
        return importlib.import_module(f"rich.{module}")
    except ImportError as error:
        raise MissingExtra("tables and bars need rich: pip install 'rookery[train]'") from error
