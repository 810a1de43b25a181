"""Command lines from dataclasses, with errors of one line."""

from __future__ import annotations

import argparse
import difflib
import io
import json
import math
import re
import sys
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

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
    flags = flags_of(kind)
    if not {"-h", "--help"} & set(arguments):
        _require_known(flags, arguments, program)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(kind, args=_as_tyro_reads(flags, arguments), prog=program)
    except SystemExit as error:
        if error.code in (0, None):
            raise
        raise UsageError(f"{_one_line(complaint.getvalue())} (see {program} --help)") from error


def flags_of(kind: type[Any]) -> dict[str, Any]:
    """The flags of a dataclass and of those within it, such as ``num-envs``, with their types."""
    flags: dict[str, Any] = {}
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint) and isinstance(hint, type):
            flags |= flags_of(hint)
        else:
            flags[field.name.replace("_", "-")] = hint
    return flags


def flag_of(argument: str) -> str | None:
    """The flag that an argument names, without what is assigned to it; None if it is a value."""
    if not argument.startswith("--"):
        return None
    return argument[2:].partition("=")[0].replace("_", "-")


def _require_known(flags: dict[str, Any], arguments: list[str], program: str) -> None:
    """Complain of a flag that there is not, and tell the nearest."""
    known = [*flags, *(f"no-{name}" for name, kind in flags.items() if bool in _kinds(kind))]
    for flag in filter(None, map(flag_of, arguments)):
        if flag not in known and not flag.startswith("tyro-"):
            near = difflib.get_close_matches(flag, known, 2, cutoff=0.6)
            hint = f"; did you mean {' or '.join(f'--{name}' for name in near)}?" if near else ""
            raise UsageError(f"there is no option --{flag}{hint} (see {program} --help)")


def _as_tyro_reads(flags: dict[str, Any], arguments: list[str]) -> list[str]:
    """Write ``64,64`` as two values where several are taken, and ``1e5`` as a whole number."""
    read: list[str] = []
    kinds: set[Any] = set()
    for argument in arguments:
        flag = flag_of(argument)
        if flag is not None:
            kinds = _kinds(flags.get(flag))
            name, assigned, value = argument.partition("=")
            read += [name] if assigned else [argument]
            if not assigned:
                continue
            argument = value
        if tuple in kinds and "," in argument:
            read += [part.strip() for part in argument.strip("()[]").split(",") if part.strip()]
        elif int in kinds and re.fullmatch(r"\d+(\.\d+)?[eE]\d+", argument):
            number = float(argument)
            read.append(str(int(number)) if number.is_integer() else argument)
        else:
            read.append(argument)
    return read


def _kinds(hint: Any) -> set[Any]:
    """The types that a hint such as ``tuple[int, ...] | None`` names."""
    parts = get_args(hint)
    if getattr(hint, "__origin__", hint) is tuple:
        return {tuple}
    return set().union(*map(_kinds, parts)) if parts else {hint}


def _one_line(box: str) -> str:
    """Keep the sentences of tyro's error box, without frame and general help."""
    kept: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip(" │╭╮╰╯─-|+")
        if text.startswith(_HELP_STARTS):
            break
        if text:
            kept.append(line.strip(" │|"))
    text = " ".join(kept) or "these arguments do not fit"
    return text.removeprefix("Error parsing train: ")


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
    """Print the last line of a command: one JSON object, on standard output.

    JSON knows no NaN; such a number is null.
    """
    sys.stderr.flush()
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in result.items()
    }
    print(json.dumps(finite), flush=True)
