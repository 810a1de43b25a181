"""Metrics for the person who waits: a progress bar, or plain lines where there is no terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from rookery.errors import MissingExtra
from rookery.telemetry.sink import Sink


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
