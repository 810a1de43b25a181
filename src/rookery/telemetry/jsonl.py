"""Metrics as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.errors import ConfigError
from rookery.telemetry.sink import Sink


class JSONLSink(Sink):
    """One object per update, each on its line, flushed at once: ``tail -f`` works."""

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        """Open ``path`` for appending; lines after ``resume_step`` are dropped, they come again."""
        if resume_step is not None and path.exists():
            _drop_after(path, resume_step)
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


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _step_of(row: dict[str, Any]) -> float:
    step = row.get("step")
    return step if isinstance(step, (int, float)) else math.inf  # no line of this sink's


def _drop_after(path: Path, step: int) -> None:
    kept = [row for row in read_rows(path) if _step_of(row) <= step]
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        temporary.replace(path)
    except BaseException:  # a full disk: half of it is of use to nobody
        temporary.unlink(missing_ok=True)
        raise
