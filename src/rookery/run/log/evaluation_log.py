"""The evaluations of a run: which returns the policy had at which env step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.log.jsonl import read_rows

_MEAN, _STD = "eval_return_mean", "eval_return_std"


class EvaluationLog:
    """Keeps evaluations in a file, each on its line, as soon as it was made.

    They have a file of their own because metrics have one line for each update, or for several:
    the evaluation at the end of a run belongs to none of them.

    Args:
        path: of the file; there is none before the first evaluation.
        resume_step: evaluations after this env step are dropped, they come again; None begins anew.

    Raises:
        ConfigError: the file cannot be read.
        StorageError: it cannot be written.
    """

    def __init__(self, path: Path, resume_step: int | None) -> None:
        self._path = path.absolute()  # an env may go to another folder
        self._points: dict[int, tuple[float, float]] = {}
        if resume_step is None or not path.exists():
            return
        written = evaluations_in(read_rows(path))
        self._points = {step: (mean, std) for step, mean, std in written if step <= resume_step}
        if len(self._points) < len(written):
            self._write(self._points)

    def add(self, step: int, mean: float, std: float) -> None:
        """Keep an evaluation, in the place of an earlier one at the same step.

        Args:
            step: env steps so far.
            mean: of the returns.
            std: their standard deviation.

        Raises:
            StorageError: the file cannot be written; it is as it was.
        """
        points = {**self._points, step: (mean, std)}
        if math.isfinite(mean):
            self._write(points)
            self._points = points

    def points(self) -> list[tuple[int, float, float]]:
        """Env step, mean return and standard deviation of each, in order."""
        return [(step, *self._points[step]) for step in sorted(self._points)]

    def _write(self, points: dict[int, tuple[float, float]]) -> None:
        rows = [{"step": step, _MEAN: mean, _STD: std} for step, (mean, std) in points.items()]
        with whole_file(self._path) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())


def evaluations_in(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float, float]]:
    """The evaluations that lines of evaluations.jsonl or of metrics.jsonl hold, if any.

    Returns:
        Env step, mean return and standard deviation of each; one that is not known is 0.
    """
    points = []
    for row in rows:
        step, mean, std = (number_of(row.get(name)) for name in ("step", _MEAN, _STD))
        if step is not None and mean is not None:
            points.append((int(step), mean, std or 0.0))
    return points


def number_of(value: Any) -> float | None:
    """``value`` as a float; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 300 digits
        return None
    return number if math.isfinite(number) else None
