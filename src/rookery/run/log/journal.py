"""Metrics on their way to the sinks: gathered over some updates, then written as one line."""

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
    """Gathers metrics and writes them every ``log_steps`` env steps.

    Args:
        sinks: where lines go.
        log_steps: env steps between two lines; 0 writes one for each update.
        steps: env steps that were made before.
        latest: metrics of updates of which the latest value counts, not the mean.
        summed: likewise, of which the sum counts.
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
        self._held: tuple[dict[str, float], dict[str, float]] | None = None

    def hold(self, metrics: Mapping[str, float], line: Mapping[str, float] | None) -> None:
        """Have the next update complete a line that was written before the run was resumed.

        Args:
            metrics: of the update, as far as they were known then.
            line: as it was written; None where it is lost, and these metrics stand for it.
        """
        before = numbers(metrics)
        self._held = before, before if line is None else dict(line)

    def add(
        self,
        steps: int,
        now: Mapping[str, float],
        metrics: Mapping[str, float],
        times: Mapping[str, float],
        peaks: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Take in one update.

        Args:
            steps: env steps so far.
            now: metrics of which the latest values count, also where a later update has none.
            metrics: metrics of which the mean counts, but for those that are told otherwise.
            times: seconds, of which the sum counts.
            peaks: metrics of which the largest value counts.
        """
        now, metrics = numbers(now), numbers(metrics)
        if self._held is not None:
            before, line = self._held
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
        """Write what has been gathered, if anything."""
        if self._held is not None:
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
        """Write the line that was held back."""
        assert self._held is not None
        (_, line), self._held = self._held, None
        self._write(line)

    def _write(self, row: dict[str, float]) -> None:
        for sink in self._sinks:
            with _told_as_storage_error(sink):
                sink.write(self._steps, row)

    def close(self) -> None:
        """Write the rest and close the sinks, all of them.

        Raises:
            StorageError: the first that one of them has met.
        """
        with contextlib.ExitStack() as stack:
            for sink in reversed(self._sinks):
                stack.enter_context(_told_as_storage_error(sink))
                stack.callback(sink.close)
            self.flush()


@contextlib.contextmanager
def _told_as_storage_error(sink: Sink) -> Iterator[None]:
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
    """Open the destinations of a run's metrics; their libraries are loaded here, not before.

    Args:
        folder: of the run.
        settings: of the run.
        progress: whether somebody looks on.
        resume_step: env steps at which a run is gone on with; None begins one.
        more: the user's own.

    Raises:
        StorageError: a file cannot be opened; those that were are closed.
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
    """The folder for who writes names in UTF-8: absolute, unless one above it has no such name."""
    try:
        str(folder.absolute).encode()
    except UnicodeEncodeError:  # the locale is C, and knows ASCII only
        return folder.path
    return folder.absolute


def line_at(path: Path, step: int) -> dict[str, float] | None:
    """The metrics that metrics.jsonl holds at an env step; None if it holds none."""
    if not path.is_file():
        return None
    rows = [row for row in read_rows(path) if row.pop("step", None) == step]
    return {k: math.nan if v is None else v for k, v in rows[-1].items()} if rows else None


def checked_sinks(sinks: Any) -> list[Sink]:
    """``sinks`` as a list.

    Raises:
        ConfigError: they are not a sequence of objects that have what a `Sink` has.
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
    """Metrics as floats; what `float` takes, such as a tensor of one element, will do.

    Raises:
        ConfigError: one of them is no number.
    """
    floats = {}
    for name, value in metrics.items():
        try:
            floats[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = type(value).__name__
            raise ConfigError(f"metric {name!r} must be a number, got a {kind}: {error}") from error
    return floats
