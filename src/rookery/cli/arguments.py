"""Parse command lines into dataclasses, with errors of one line."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from rookery.common.arguments import did_you_mean
from rookery.errors import ConfigError, UsageError

T = TypeVar("T")

# The lines of tyro's error box at which its general help begins.
_HELP_STARTS = ("For full helptext", "Argument helptext", "Perhaps you meant")

OUTPUT_WAY_OUT = "make its folder writable, free some disk space, or choose another --output"


def parse(
    kind: type[T], arguments: list[str], program: str, short: Callable[[], type[Any]] | None = None
) -> T:
    """Return an instance of a dataclass, filled from ``arguments``.

    Args:
        kind: the dataclass.
        arguments: the command line without the program.
        program: the command that messages name.
        short: returns a dataclass with the most used options, which ``--help`` lists;
            ``--help-all`` then lists those of ``kind``.

    Raises:
        UsageError: the arguments are invalid; the message is one line.
        SystemExit: after ``--help``.
    """
    import tyro  # late, because commands without it start faster

    if short is not None and {"-h", "--help"} & set(arguments):
        try:
            tyro.cli(short(), args=["--help"], prog=program)
        finally:
            print(f"{program} --help-all lists all options by topic")
    if short is not None and "--help-all" in arguments:
        arguments = ["--help"]
    flags = flags_of(kind)
    read = _as_tyro_reads(flags, arguments)
    if not {"-h", "--help"} & set(arguments):
        bools = (name for name, hint in flags.items() if bool in _kinds(hint))
        _require_known([*flags, *(f"no-{name}" for name in bools)], arguments, program)
        _require_values(flags, read, program)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            return tyro.cli(kind, args=read, prog=program)
    except SystemExit as error:
        if error.code in (0, None):
            raise
        raise UsageError(f"{_one_line(complaint.getvalue())} (see {program} --help)") from error


def flags_of(kind: type[Any]) -> dict[str, Any]:
    """Return the type of each flag, such as ``num-envs``, of a dataclass and nested ones."""
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
    """Return the name of a flag without an assigned value; None if the argument is a value."""
    if not argument.startswith("--"):
        return None
    return argument[2:].partition("=")[0].replace("_", "-")


def _require_known(known: list[str], arguments: list[str], program: str) -> None:
    """Raise if a flag is unknown, and suggest the most similar one."""
    for argument in arguments:
        flag = flag_of(argument)
        if flag is not None and flag not in known and not flag.startswith("tyro-"):
            hint = did_you_mean(flag, known, "--")
            hint = hint and f"; {hint}"
            raise UsageError(f"unknown option --{flag}{hint} (see {program} --help)")
        if re.match(r"-[a-z_]{2}", argument):  # a single dash; -inf is a number
            hint = did_you_mean(flag_of(f"-{argument}") or "", known, "--")
            if hint and not _is_number(argument):
                raise UsageError(
                    f"unknown option {argument.partition('=')[0]}; {hint} (see {program} --help)"
                )


def _require_values(flags: dict[str, Any], arguments: list[str], program: str) -> None:
    """Raise if a value does not fit its flag, and name the accepted values."""
    flag, hint = None, None
    for argument in arguments:
        named = flag_of(argument)
        if named is not None:
            flag, hint = named, flags.get(named)
            continue
        kinds = _kinds(hint)  # only the first value is checked; the next one may be the env
        if bool in kinds and argument.lower() in ("true", "false", "yes", "no", "1", "0"):
            raise UsageError(
                f"--{flag} takes no value, got {argument!r}; write --{flag} or --no-{flag} (see "
                f"{program} --help)"
            )
        if argument != "None" and (wanted := _wanted(hint, argument)):
            raise UsageError(
                f"--{flag} is {argument!r}; it must be {wanted} (see {program} --help)"
            )
        hint = None


def _wanted(hint: Any, value: str) -> str:
    """Describe the values that a flag accepts if ``value`` is not valid; else empty."""
    choices, kinds = _choices(hint), _kinds(hint)
    if choices and value not in choices:
        near = did_you_mean(value, choices)
        return f"{', '.join(choices[:-1])} or {choices[-1]}{near and '; ' + near}"
    if tuple in kinds and int in _kinds(get_args(_tuple_of(hint))[0]) and not _is_whole(value):
        return "whole numbers, such as 64 64"
    if kinds <= {int, type(None)} and hint is not None and not _is_whole(value):
        return "a whole number"
    if float in kinds and not _is_number(value):
        return "a number"
    return ""


def _choices(hint: Any) -> list[str]:
    """Return the choices of a hint such as ``Literal["a", "b"] | None``; empty for other hints."""
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    return [choice for part in get_args(hint) for choice in _choices(part)]


def _tuple_of(hint: Any) -> Any:
    """Return the tuple in a hint such as ``tuple[int, ...] | None``."""
    return hint if get_origin(hint) is tuple else next(filter(_tuple_of, get_args(hint)), None)


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d[\d_]*", text.strip()) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_tyro_reads(flags: dict[str, Any], arguments: list[str]) -> list[str]:
    """Split ``64,64`` for flags with several values, and write ``1e5`` as a whole number."""
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
    """Return the types in a hint such as ``tuple[int, ...] | None``."""
    parts = get_args(hint)
    if getattr(hint, "__origin__", hint) is tuple:
        return {tuple}
    return set().union(*map(_kinds, parts)) if parts else {hint}


def _one_line(box: str) -> str:
    """Return the message in tyro's error box, without frame and general help."""
    kept: list[str] = []
    for line in box.splitlines()[1:]:
        text = line.strip(" │╭╮╰╯─-|+")
        if text.startswith(_HELP_STARTS):
            break
        if text:
            kept.append(line.strip(" │|"))
    text = " ".join(kept) or "the arguments are invalid"
    return text.removeprefix("Error parsing train: ")


class CommandParser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError, with a message of one line."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; for an unknown flag, suggest the most similar one."""
        arguments = list(args)
        known = [option[2:] for option in self._option_string_actions if option[:2] == "--"]
        _require_known(known, arguments, self.prog)
        return super().parse_args(arguments, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with the message."""
        raise UsageError(f"{message} (see {self.prog} --help)")


def whole_number_in(text: str, least: int = 0) -> int:
    """Return the whole number in the value of a flag; ``1e5`` is one."""
    number = float(text) if _is_number(text) else math.nan
    if not number.is_integer() or number < least:
        raise argparse.ArgumentTypeError(
            f"must be a whole number of at least {least}, got {text!r}"
        )
    return int(number)


def count(text: str) -> int:
    """Return the whole number from 1 on in the value of a flag."""
    return whole_number_in(text, 1)


def parse_json(text: str, flag: str) -> dict[str, Any]:
    """Return the JSON object in the value of a flag."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{flag} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object such as '{{\"size\": 5}}', not {text}")
    return value


def checked_output(name: str, suffixes: Sequence[str], flag: str = "--output") -> Path:
    """Return the path of an output file, after checking that it can be written.

    Args:
        name: path of the file.
        suffixes: allowed suffixes; empty allows any.
        flag: the flag that gave the path, for messages.

    Raises:
        ConfigError: the file cannot be written.
    """
    output = Path(name)
    if suffixes and output.suffix.lower() not in suffixes:
        *others, last = suffixes
        known = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{flag} must end in {known}, got {name!r}")
    if os.path.isdir(output):  # unlike Path.is_dir, this never raises for an invalid name
        raise ConfigError(f"{flag} {output} is a folder; give the path of a file")
    if not os.path.isdir(output.parent):
        raise ConfigError(
            f"the folder {output.parent} of {flag} {output} does not exist; create it, or choose "
            f"another {flag}"
        )
    try:
        tempfile.TemporaryFile(dir=output.parent).close()
    except OSError as error:
        raise ConfigError(
            f"{flag} {output} cannot be written: {error.strerror or error}; choose another {flag}"
        ) from error
    return output


def print_result(result: dict[str, Any]) -> None:
    """Print the result of a command to standard output, as one line with a JSON object.

    Numbers that are not finite are printed as null, as JSON cannot represent them.
    """
    sys.stderr.flush()
    finite = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in result.items()
    }
    print(json.dumps(finite), flush=True)
