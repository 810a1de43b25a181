"""Runs that a command is given, by their folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rookery.cli.arguments import CommandParser
from rookery.errors import ConfigError
from rookery.report.recorded import RecordedRun, read_run


def add_runs(parser: CommandParser) -> None:
    """Add the folders, and ``--group-by``, which their runs are grouped by."""
    parser.add_argument(
        "runs", nargs="+", metavar="RUN_DIR", help="folders that rookery train wrote"
    )
    parser.add_argument(
        "--group-by",
        nargs="+",
        default=[],
        metavar="SETTING",
        help="runs in which these settings are the same become one line, whatever else differs; "
        "give it after the runs",
    )


def read_runs(folders: Sequence[str]) -> list[RecordedRun]:
    """Read each run once.

    Of several, as ``runs/*`` gives them, one that cannot be shown is left out, such as a picture
    that lies beside them or a run that begins; standard error says so.

    Raises:
        ConfigError: a path is not there, or no run is left.
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
    """The settings that ``--group-by`` names, with commas or spaces between them."""
    return [name for names in group_by for name in names.split(",") if name]
