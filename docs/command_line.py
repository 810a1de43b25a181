"""Write the tables of options in ``cli.md``, out of what ``--help`` of every command prints.

    python docs/command_line.py

``scripts/docs`` runs it before it builds the site, and a test holds the page to it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).with_name("cli.md")

# ``<!-- options: rookery train ppo; learner options -->``, and everything up to the end mark.
_MARK = re.compile(r"(<!-- options: (.+?)(?:; (.+?))? -->\n).*?(<!-- options: end -->)", re.DOTALL)
_SHORT_HELP = re.compile(r"rookery (train|tune) \w+$")  # commands that have --help-all
_FRAME = "│╭╮╰╯─ "
_WIDTH = "120"
_INDENT = 8  # what is further right goes on with the help of the option above


@dataclass
class Option:
    """One line of a help: an option or a positional argument."""

    group: str
    flag: str
    values: str
    text: str


@cache
def options_of(command: str) -> tuple[Option, ...]:
    """All that ``command --help`` lists, in its order."""
    return tuple(_options(_help(command)))


def _help(command: str) -> str:
    from rookery.cli import main

    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDTH
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*command.split()[1:], "--help-all" if _SHORT_HELP.match(command) else "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width
    printed.seek(0)
    return printed.read()


def _options(text: str) -> Iterator[Option]:
    """Read the boxes of tyro and the indented lists of argparse alike."""
    group, head, told = "", "", ""
    for line in [*text.splitlines(), ""]:
        inside = line.strip("│ ") if line.startswith(("│", " ")) else ""
        if head and len(line) - len(line.lstrip("│ ")) > _INDENT:
            told = f"{told}{inside}" if told.endswith("-") else f"{told} {inside}"
            continue
        if head:
            yield _option(group, head, told.strip())
        head = ""
        if line.startswith("╭") or re.fullmatch(r"[a-z][\w ]*:", line):
            group = line.strip(_FRAME).rstrip(":")
        elif group and (inside.startswith("-") or (group == "positional arguments" and inside)):
            head, _, told = inside.partition("  ")


def _option(group: str, head: str, told: str) -> Option:
    name, *others = head.split(", ")
    if name == "-h":
        name, *others = others
    flag, _, values = name.partition(" ")
    if any(other.startswith("--no-") for other in others):
        flag = f"{flag}, {others[-1]}"
    return Option(group, flag, values.replace("{None}|", ""), told)


def table(command: str, group: str | None) -> str:
    """The options of a command as a table, of one group or of all, without ``--help``."""
    rows = [
        _row(option)
        for option in options_of(command)
        if option.flag.startswith("-") and option.flag != "--help"
        if group in (None, option.group)
    ]
    if not rows:
        raise ValueError(f"`{command} --help` lists no {group or 'options'}")
    return "\n".join(["| option | what it does | default |", "|---|---|---|", *rows]) + "\n"


def _row(option: Option) -> str:
    told, _, default = option.text.partition(" (default: ")
    told = told.replace(" (required)", "").replace(" (repeatable)", " Repeatable.")
    values = option.values
    if choices := re.fullmatch(r"\{(.+)\}", values):
        told = f"{told.rstrip('.')}. One of {', '.join(f'`{c}`' for c in choices[1].split(','))}."
        values = ""
    default = default[:-1].strip("'\"") if default else ""
    default = "" if default in ("None", "") else f"`{default}`"
    cells = [f"`{f'{option.flag} {values}'.strip()}`", told, default]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def written(text: str) -> str:
    """The page with its tables brought up to date."""
    return _MARK.sub(lambda mark: f"{mark[1]}{table(mark[2], mark[3])}{mark[4]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
