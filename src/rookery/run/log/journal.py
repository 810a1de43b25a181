"""The journal of a run: metrics of several updates, written to the sinks as one line."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rookery.common.arguments import unfit
from rookery.errors import ConfigError, StorageError
from rookery.run.checkpoint.run_dir import RunDirectory, cannot_write
from rookery.run.log.jsonl import read_rows
from rookery.run.log.sinks import JSONLSink, Sink, TensorBoardSink, terminal_sink
from rookery.run.settings import TrainSettings


class Journal:
    """Metrics that are collected and written every ``log_steps`` env steps.

    Args:
        sinks: destinations of the lines.
        log_steps: env steps between two lines; 0 writes a line for each update.
        steps: number of env steps before the first update.
        latest: names of metrics whose latest value is written, instead of the mean.
        summed: names of metrics whose sum is written, instead of the mean.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        log_steps: int,
        steps: int = 0,
        latest: Collection[str] = (),
        summed: Collection[str] = (),
    ) -> None:
        self._sinks = sinks
        self._latest, self._summed = latest, summed
        self._log_steps = log_steps
        self._steps = self._written = steps
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._times: dict[str, float] = {}
        self._peaks: dict[str, float] = {}
        self._now: dict[str, float] = {}
        self._pending: tuple[dict[str, float], dict[str, float]] | None = None

    def hold(self, metrics: Mapping[str, float], line: Mapping[str, float] | None) -> None:
        """Let the next update complete the last line of the run that is resumed.

        Args:
            metrics: metrics of the update that were known when the run was saved.
            line: the line that was written; None if it is lost, and ``metrics`` replace it.
        """
        before = numbers(metrics)
        self._pending = before, before if line is None else dict(line)

    def add(
        self,
        steps: int,
        now: Mapping[str, float],
        metrics: Mapping[str, float],
        times: Mapping[str, float],
        peaks: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Add the metrics of one update, and write a line if it is due.

        Args:
            steps: number of env steps so far.
            now: metrics whose latest value is written, even if a later update lacks them.
            metrics: metrics whose mean is written, unless they are in ``latest`` or
                ``summed``.
            times: seconds by activity, whose sum is written.
            peaks: metrics whose largest value is written.
        """
        now, metrics = numbers(now), numbers(metrics)
        if self._pending is not None:
            before, line = self._pending
            line.update({k: v for k, v in now.items() if k not in before or v != before[k]})
            self._release()
            return
        self._now.update(now)
        summed = dict(times)
        for name, value in metrics.items():
            if name in self._latest:
                self._now[name] = value
            elif name in self._summed:
                summed[name] = value
            else:
                self._sums[name] = self._sums.get(name, 0.0) + value
                self._counts[name] = self._counts.get(name, 0) + 1
        for name, value in summed.items():
            self._times[name] = self._times.get(name, 0.0) + value
        for name, value in peaks.items():
            self._peaks[name] = max(self._peaks.get(name, value), value)
        self._steps = steps
        if steps >= self._written + self._log_steps:
            self.flush()

    def flush(self) -> None:
        """Write the metrics since the last line, if there are any."""
        if self._pending is not None:
            self._release()
        if self._steps == self._written:
            return
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        row = {**self._now, **means, **self._peaks, **self._times}
        self._written = self._steps
        self._sums, self._counts, self._times, self._peaks = {}, {}, {}, {}
        self._now = {}
        self._write(row)

    def _release(self) -> None:
        """Write the pending line."""
        assert self._pending is not None
        (_, line), self._pending = self._pending, None
        self._write(line)

    def _write(self, row: dict[str, float]) -> None:
        for sink in self._sinks:
            with _as_storage_error(sink):
                sink.write(self._steps, row)

    def close(self) -> None:
        """Write the remaining metrics and close all sinks.

        Raises:
            StorageError: a sink cannot write; the others are closed nevertheless.
        """
        with contextlib.ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.enter_context(_as_storage_error(sink))
                stack.callback(sink.close)
            self.flush()


@contextlib.contextmanager
def _as_storage_error(sink: Sink) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        where = getattr(sink, "path", None) or Path(f"the metrics of {type(sink).__name__}")
        raise cannot_write(where, error) from None


def sinks_of(
    folder: RunDirectory,
    settings: TrainSettings,
    progress: bool,
    resume_step: int | None,
    more: Sequence[Sink] = (),
) -> list[Sink]:
    """Open the sinks of a run.

    Args:
        folder: folder of the run.
        settings: settings of the run.
        progress: show the progress in the terminal.
        resume_step: number of env steps at which the run is resumed; None for a new run.
        more: sinks of the user.

    Raises:
        StorageError: a file cannot be opened; the other sinks are closed.
    """
    openers: list[tuple[Path, Callable[[], Sink]]] = [
        (folder.metrics, lambda: JSONLSink(folder.metrics, resume_step)),
        (folder.path, lambda: TensorBoardSink(_encodable(folder), resume_step)),
    ]
    if progress:
        openers.append((folder.path, lambda: terminal_sink(settings.total_steps)))
    sinks: list[Sink] = []
    with contextlib.ExitStack() as opened:
        for path, open_sink in openers:
            try:
                sinks.append(open_sink())
            except OSError as error:
                raise cannot_write(path, error) from None
            opened.callback(sinks[-1].close)
        opened.pop_all()
    return [*sinks, *more]


def _encodable(folder: RunDirectory) -> Path:
    """Return the absolute folder, or its relative path if a parent's name is not UTF-8."""
    try:
        str(folder.absolute).encode()
    except UnicodeEncodeError:  # the locale is C, which supports only ASCII
        return folder.path
    return folder.absolute


def line_at(path: Path, step: int) -> dict[str, float] | None:
    """Return the line of metrics.jsonl at an env step, or None."""
    if not path.is_file():
        return None
    rows = [row for row in read_rows(path) if row.pop("step", None) == step]
    return {k: math.nan if v is None else v for k, v in rows[-1].items()} if rows else None


def checked_sinks(sinks: Any) -> list[Sink]:
    """Return ``sinks`` as a list.

    Raises:
        ConfigError: they are not a sequence of objects with the methods of `Sink`.
    """
    what = "with the methods write(step, metrics) and close()"
    if isinstance(sinks, str) or not isinstance(sinks, Iterable):
        raise unfit("sinks", f"a sequence of objects {what}", sinks)
    listed = list(sinks)
    for i, sink in enumerate(listed):
        methods = [getattr(sink, name, None) for name in ("write", "close")]
        if isinstance(sink, type) or not all(map(callable, methods)):
            raise unfit(f"sinks[{i}]", f"an object {what}", sink)
    return listed


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Convert metrics to floats; tensors of one element are allowed.

    Raises:
        ConfigError: a metric is not a number.
    """
    floats = {}
    for name, value in metrics.items():
        try:
            floats[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(value).__name__
            raise ConfigError(f"metric {name!r} must be a number, got a {kind}: {error}") from error
    return floats
