"""``rookery replay FILE``."""

from __future__ import annotations

import pdb
import sys
import traceback

from rookery.cli.arguments import CommandParser
from rookery.errors import EnvFailed
from rookery.vector.crash import CrashReport


def run(arguments: list[str]) -> int:
    """Replay a crash report; return 1 if the env fails again."""
    parser = CommandParser(
        "rookery replay",
        description="Build the env of a crash report in this process, and repeat all calls to it.",
    )
    parser.add_argument("file", help="a crash report written because of crash_dir=")
    parser.add_argument("--debug", action="store_true", help="open pdb at the failure")
    command = parser.parse_args(arguments)
    report = CrashReport.load(command.file)
    print(f"env {report.env_id} ({report.recipe.name}), {len(report.events)} events")
    if not report.is_whole:
        print("the report lacks the oldest events; the env may behave differently", file=sys.stderr)
    try:
        survived = report.replay()
    except EnvFailed as error:
        cause = error.__cause__ or error
        traceback.print_exception(cause)
        print(error, file=sys.stderr)
        if command.debug:
            pdb.post_mortem(cause.__traceback__)
        return 1
    print(f"no failure in {survived} events; the original failure: {report.error}")
    return 0
