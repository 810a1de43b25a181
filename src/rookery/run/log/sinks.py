"""Sinks: destinations of a run's metrics. Libraries are imported when a sink is opened."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from rookery.errors import MissingExtra
from rookery.run.log.jsonl import drop_after


class Sink(Protocol):
    """A destination of metrics; any object with these two methods is one."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics at env step ``step``."""

    def close(self) -> None:
        """Flush and release resources; may be called twice."""


class JSONLSink(Sink):
    """A file with one JSON object per line, flushed after each line.

    Args:
        path: path of the file, which is opened for appending.
        resume_step: lines of later env steps are deleted, because a resumed run writes them again.
            None keeps all lines.

    Raises:
        StorageError: lines of later env steps cannot be deleted.
    """

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        if resume_step is not None and path.exists():
            drop_after(path, resume_step)
        self.path = path
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._file.write(json.dumps({"step": step, **finite}) + "\n")

    def close(self) -> None:
        self._file.close()


class TensorBoardSink(Sink):
    """TensorBoard events.

    Args:
        folder: folder in which a new file of events is created.
        resume_step: TensorBoard hides events of earlier files after this env step. None hides
            nothing.

    Raises:
        MissingExtra: tensorboard is not installed.
    """

    def __init__(self, folder: Path, resume_step: int | None = None) -> None:
        try:  # torch's wrapper of these takes two seconds to import
            from tensorboard.compat.proto import (  # type: ignore[import-untyped]
                event_pb2,
                summary_pb2,
            )
            from tensorboard.summary.writer.event_file_writer import (  # type: ignore[import-untyped]
                EventFileWriter,
            )
        except ImportError as error:
            raise MissingExtra("TensorBoard events need: pip install 'rookery[train]'") from error
        self.path = folder
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = EventFileWriter(str(folder))
        if resume_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(
                self._event(wall_time=time.time(), step=resume_step + 1, session_log=start)
            )
        self._closed = False

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        value = self._summary.Value
        values = [value(tag=name, simple_value=number) for name, number in metrics.items()]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        if not self._closed:
            self._writer.close()
            self._closed = True


class WandbSink(Sink):
    """A run of Weights & Biases.

    The run is created with the first metrics, so that a training that fails earlier creates none.
    The metric ``env_steps`` is the x axis of all other metrics. The service's own step counter
    could not go back when a training is resumed.

    Args:
        project: project of the run.
        **options: further arguments of ``wandb.init``, such as ``name``, ``config`` or ``mode``.

    Raises:
        MissingExtra: wandb is not installed.
    """

    def __init__(self, project: str | None = None, **options: Any) -> None:
        try:
            import wandb  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError as error:
            raise MissingExtra("WandbSink needs wandb: pip install 'rookery[wandb]'") from error
        self._wandb: Any = wandb
        self._options = {"project": project, **options}
        self._run: Any = None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._run is None:
            self._run = self._wandb.init(**self._options)
            self._run.define_metric("env_steps")
            self._run.define_metric("*", step_metric="env_steps")
        self._run.log({"env_steps": step, **metrics})

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.finish()


def terminal_sink(total_steps: int, stream: TextIO | None = None) -> Sink:
    """Return a progress bar if ``stream`` is a terminal, else a sink of plain lines.

    Args:
        total_steps: number of env steps of the run.
        stream: stream to write to; None is standard error.
    """
    stream = stream or sys.stderr
    return ProgressBar(total_steps) if stream.isatty() else PlainLines(total_steps, stream)


class PlainLines(Sink):
    """A line of progress every five seconds, and one at the end."""

    _INTERVAL_S = 5.0

    def __init__(self, total_steps: int, stream: TextIO) -> None:
        self._total_steps = total_steps
        self._stream = stream
        self._next = time.monotonic() + self._INTERVAL_S
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
        self._next = time.monotonic() + self._INTERVAL_S


class ProgressBar(Sink):
    """A progress bar on standard error, with the remaining time and the latest return."""

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
