"""Command lines from dataclasses, with errors of one line."""

from __future__ import annotations

import argparse
import io
import json
import sys
from contextlib import redirect_stderr
from typing import Any, NoReturn, TypeVar

from rookery.errors import ConfigError, MissingExtra, UsageError

T = TypeVar("T")

# Where tyro's error box turns from what is wrong to general help.
_HELP_STARTS = ("For full helptext", "Argument helptext", "Perhaps you meant")


def parse(kind: type[T], arguments: list[str], program: str) -> T:
    """Fill a dataclass from ``arguments``.

    Raises:
        UsageError: they do not fit; the message is one line.
        SystemExit: after ``--help``.
    """
    try:
        import tyro
    except ImportError as error:
        raise MissingExtra("the command line needs: pip install 'rookery[train]'") from error
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(kind, args=arguments, prog=program)
    except SystemExit as error:
        if error.code in (0, None):
            raise
        raise UsageError(f"{_one_line(complaint.getvalue())} (see {program} --help)") from error


def _one_line(box: str) -> str:
    """Keep the sentences of tyro's error box, without frame and general help."""
    kept: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip(" │╭╮╰╯─-|+")
        if text.startswith(_HELP_STARTS):
            break
        if text:
            kept.append(line.strip(" │|"))
    return " ".join(kept) or "these arguments do not fit"


class CommandParser(argparse.ArgumentParser):
    """An argparse parser whose complaints are errors of one line."""

    def error(self, message: str) -> NoReturn:
        """Raise the complaint."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def parse_json(text: str, flag: str) -> dict[str, Any]:
    """Read a flag's JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{flag} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object such as '{{\"size\": 5}}', not {text}")
    return value


def print_result(result: dict[str, Any]) -> None:
    """Print the last line of a command: one JSON object, on standard output."""
    sys.stderr.flush()
    print(json.dumps(result), flush=True)
