"""The command line: one file per command, loaded when the command is given."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from gymnasium.error import DependencyNotInstalled

from rookery.common.arguments import did_you_mean
from rookery.errors import EnvFailed, RookeryError, UsageError

COMMANDS = {
    "train": "train a policy on parallel environments",
    "eval": "evaluate the checkpoint of a run",
    "watch": "show a run in the terminal while it trains",
    "report": "write a page about runs",
    "plot": "draw the curves of runs into one picture",
    "tune": "measure how many envs to run, and where; or search for settings",
    "bench": "measure how fast an env steps, here and elsewhere",
    "doctor": "look for what would break a run of an env",
    "replay": "run a crash report again",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done. 1: an env or its process failed. 2: something was asked that cannot be. 130: Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        code = _dispatch(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # what cannot be printed is told here, not when Python exits
        return code
    except RookeryError as error:
        print(f"{_of_the_env(error)}rookery: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt as error:
        print(f"rookery: interrupted {error}".rstrip(), file=sys.stderr)
        return 130
    except OSError as error:
        is_left = isinstance(error, BrokenPipeError) or _is_broken_pipe_of_windows(error)
        if not is_left and not _is_output_full():
            raise
        if not is_left:  # else by a reader such as `head`
            reason = error.strerror or error
            print(f"rookery: error: standard output takes nothing: {reason}", file=sys.stderr)
        # Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _is_output_full() -> bool:
    """Whether standard output takes nothing, which one character tells."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _print_anything() -> None:
    """Have a character that a terminal or file cannot show be a question mark, not an error.

    Windows gives a program whose output is redirected an encoding of 256 characters.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _of_the_env(error: RookeryError) -> str:
    """The traceback of what an env has raised, for whoever has to mend it; else empty."""
    cause = error.__cause__
    if not isinstance(error, EnvFailed) or isinstance(error, UsageError) or cause is None:
        return ""
    if isinstance(cause, (ImportError, DependencyNotInstalled, UsageError)):  # which say it all
        return ""
    from rookery.worker.failures import RemoteTraceback  # not for every command that starts

    if isinstance(cause.__cause__, RemoteTraceback):
        return f"{str(cause.__cause__).strip()}\n\n"
    return "".join(traceback.format_exception(cause)) + "\n"


def _is_broken_pipe_of_windows(error: OSError) -> bool:
    return sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from rookery import __version__

        print(f"rookery {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = did_you_mean(name, [*COMMANDS, "--help", "--version"])
        hint = f"{near} C" if near else "c"
        raise UsageError(f"there is no command {name!r}; {hint}hoose from {', '.join(COMMANDS)}")
    _import_from_here()
    return int(importlib.import_module(f"rookery.cli.{name}").run(rest))


def _help() -> str:
    commands = "\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items())
    return (
        "usage: rookery COMMAND ...\n\n"
        f"commands:\n{commands}\n\n"
        "`rookery COMMAND --help` explains a command; `rookery --version` prints the version."
    )


def _import_from_here() -> None:
    """Let env modules be imported from the current folder, as ``python -m`` does.

    Raises:
        UsageError: somebody has deleted it.
    """
    try:
        here = os.getcwd()  # absolute: workers look the module up too
    except FileNotFoundError as error:
        raise UsageError("the current folder was deleted; change to another one") from error
    if here not in sys.path:
        sys.path.insert(0, here)
