"""Files of JSON lines: metrics, telemetry and evaluations of a run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rookery.errors import ConfigError
from rookery.run.checkpoint.run_dir import whole_file

_MEAN, _STD = "eval_return_mean", "eval_return_std"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the JSON objects of a file; an invalid last line is left out.

    A process that was killed may leave an incomplete last line.

    Raises:
        ConfigError: the file cannot be read, or a line before the last is not a JSON object.
    """
    try:
        lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    rows = []
    for number, line in numbered:
        row = _object(line)
        if row is not None:
            rows.append(row)
        elif number != numbered[-1][0]:
            raise ConfigError(
                f"{path}, line {number}, is not a JSON object: {line[:40]!r}; delete the line"
            )
    return rows


class _Place(NamedTuple):
    """The part of a file that was read, and the properties that identify the file."""

    device: int
    inode: int
    head: bytes
    size: int


class LineFollower:
    """A reader of JSON lines from a file that another process writes.

    If the file was replaced or truncated, for example because the run was resumed, it is read again
    from its beginning.

    Args:
        path: path of the file, which may not exist yet.

    Attributes:
        damaged: number of lines that were left out because they are not JSON objects.
        restarts: number of times that the file was replaced, truncated or deleted.
    """

    _HEAD = 256  # first bytes that are compared, because a new file may have the old one's inode

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self.restarts = 0
        self._place: _Place | None = None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the complete lines written since the last call, or all if ``restarts`` has grown.

        Raises:
            OSError: the file exists but cannot be read.
        """
        try:
            file = self.path.open("rb")
        except (FileNotFoundError, NotADirectoryError):
            self._forget()
            return
        with file:
            status = os.fstat(file.fileno())
            head = file.read(self._HEAD)
            if not self._is_same(status, head):
                self._forget()
            size = self._place.size if self._place else 0
            file.seek(size)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the line is incomplete
                size += len(line)
                self._place = _Place(status.st_dev, status.st_ino, head[:size], size)
                if line.strip():
                    row = _object(line.decode("utf-8", errors="replace"))
                    if row is not None:
                        yield row
                    else:
                        self.damaged += 1

    def _is_same(self, status: os.stat_result, head: bytes) -> bool:
        place = self._place
        return place is None or (
            (place.device, place.inode) == (status.st_dev, status.st_ino)
            and status.st_size >= place.size
            and head.startswith(place.head)
        )

    def _forget(self) -> None:
        if self._place is not None:
            self.restarts += 1
        self.damaged, self._place = 0, None


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def drop_after(path: Path, step: int) -> None:
    """Delete incomplete lines, and the lines of env steps after ``step``.

    Raises:
        ConfigError: the file cannot be read, or a line before the last is not a JSON object.
        StorageError: the file cannot be written; it is unchanged.
    """
    kept = [row for row in read_rows(path) if row.get("step", math.inf) <= step]
    with whole_file(path) as file:
        file.write("".join(json.dumps(row) + "\n" for row in kept).encode())


class EvaluationLog:
    """The file evaluations.jsonl, with one line per evaluation.

    Evaluations are not in metrics.jsonl, because its lines belong to updates. The evaluation at the
    end of a run belongs to none.

    Args:
        path: path of the file, which is created by the first evaluation.
        resume_step: evaluations after this env step are deleted, because a resumed run repeats
            them. None starts with an empty file.

    Raises:
        ConfigError: the file cannot be read.
        StorageError: the file cannot be written.
    """

    def __init__(self, path: Path, resume_step: int | None) -> None:
        self._path = path.absolute()  # an env may change the working directory
        self._points: dict[int, tuple[float, float]] = {}
        if resume_step is None or not path.exists():
            return
        written = evaluations_in(read_rows(path))
        self._points = {step: (mean, std) for step, mean, std in written if step <= resume_step}
        if len(self._points) < len(written):
            self._write(self._points)

    def add(self, step: int, mean: float, std: float) -> None:
        """Store an evaluation, which replaces an earlier one at the same step.

        Args:
            step: number of env steps so far.
            mean: mean return; the evaluation is not stored if it is not finite.
            std: standard deviation of the returns.

        Raises:
            StorageError: the file cannot be written; it is unchanged.
        """
        points = {**self._points, step: (mean, std)}
        if math.isfinite(mean):
            self._write(points)
            self._points = points

    def points(self) -> list[tuple[int, float, float]]:
        """Return env step, mean return and standard deviation of each evaluation, in order."""
        return [(step, *self._points[step]) for step in sorted(self._points)]

    def _write(self, points: dict[int, tuple[float, float]]) -> None:
        rows = [{"step": step, _MEAN: mean, _STD: std} for step, (mean, std) in points.items()]
        with whole_file(self._path) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def evaluations_in(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, float]]:
    """Return the evaluations in lines of evaluations.jsonl or metrics.jsonl.

    Returns:
        Env step, mean return and standard deviation of each; an unknown deviation is 0.
    """
    points = []
    for row in rows:
        step, mean, std = (number_of(row.get(name)) for name in ("step", _MEAN, _STD))
        if step is not None and mean is not None:
            points.append((int(step), mean, std or 0.0))
    return points


def number_of(value: Any) -> float | None:
    """Return ``value`` as a float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
