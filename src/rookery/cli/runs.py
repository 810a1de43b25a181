"""Arguments that name the folders of runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rookery.cli.arguments import CommandParser
from rookery.errors import ConfigError
from rookery.report.read import RecordedRun, read_run


def add_runs(parser: CommandParser) -> None:
    """Add the folders of runs and ``--group-by`` to a parser."""
    parser.add_argument("runs", nargs="+", metavar="RUN_DIR", help="folders of runs")
    parser.add_argument(
        "--group-by",
        nargs="+",
        default=[],
        metavar="SETTING",
        help="draw runs with equal values of these settings as one line; give it after the runs",
    )


def read_runs(folders: Sequence[str]) -> list[RecordedRun]:
    """Read runs, without duplicates.

    ``runs/*`` may match a picture, or a run without metrics. Such a path is left out with a
    warning.

    Raises:
        ConfigError: a path does not exist, or no path is a run with metrics.
    """
    runs: list[RecordedRun] = []
    left_out: list[ConfigError] = []
    for path in {Path(folder).resolve(): folder for folder in folders}.values():
        try:
            runs.append(read_run(path))
        except ConfigError as error:
            if not os.path.lexists(path):
                raise
            left_out.append(error)
    if not runs:
        raise left_out[0]
    for reason in left_out:
        print(f"rookery: left out: {reason}", file=sys.stderr)
    return runs


def names_in(group_by: Sequence[str]) -> list[str]:
    """Return the settings that ``--group-by`` names, separated by commas or spaces."""
    return [name for names in group_by for name in names.split(",") if name]
