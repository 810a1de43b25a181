"""Metrics as lines of JSON."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rookery.errors import ConfigError
from rookery.run.log.sink import Sink

_TRIES, _BETWEEN_TRIES_S = 100, 0.05  # to replace a file that is read


class JSONLSink(Sink):
    """One object per update, each on its line, flushed at once: ``tail -f`` works.

    Args:
        path: of the file, which is opened for appending.
        resume_step: lines of later env steps are dropped, since they come again; None keeps all.
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


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read lines of JSON as people and crashed machines leave them.

    A last line that is not whole is left out, whether or not it ends.

    Raises:
        ConfigError: the file cannot be read, or an earlier line is no JSON object.
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
                f"{path}, line {number}, is no JSON object: {line[:40]!r}; take the line out"
            )
    return rows


class _Place(NamedTuple):
    """What has been read of a file, and how to tell that it is still the same one."""

    device: int
    inode: int
    head: bytes
    size: int


class LineFollower:
    """Reads lines of JSON from a file that another process writes, each once it is whole.

    A file that was replaced or cut, as resuming a run does, is read from its beginning again.

    Args:
        path: of the file, which may not be there yet.

    Attributes:
        damaged: lines left out, because they were no JSON objects.
        restarts: how often the file was found to be another one, or gone.
    """

    _HEAD = 256  # bytes, by which files are told apart that have one inode after the other

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        self.restarts = 0
        self._place: _Place | None = None

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield what was written since the last call, or everything if ``restarts`` has grown.

        Raises:
            OSError: the file is there, but cannot be read.
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
                    break  # it is not whole yet
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
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _step_of(row: dict[str, Any]) -> float:
    step = row.get("step")
    return step if isinstance(step, (int, float)) else math.inf  # no line of this sink's


def drop_after(path: Path, step: int) -> None:
    """Take out the lines of later env steps, and those that are not whole."""
    kept = [row for row in read_rows(path) if _step_of(row) <= step]
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        put_in_place(temporary, path)
    except BaseException:  # a full disk: half of it is of use to nobody
        temporary.unlink(missing_ok=True)
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a file the name of another one, which it replaces.

    Windows refuses that while somebody reads the other one: a program that loads a checkpoint, or
    a virus scanner. Readers are soon done, so it is tried again for some seconds.

    Raises:
        OSError: it cannot be done.
    """
    tries = 1 if sys.platform != "win32" else _TRIES
    for left in reversed(range(tries)):
        try:
            os.replace(temporary, path)
            return
        except PermissionError:
            if not left:
                raise
            time.sleep(_BETWEEN_TRIES_S)
