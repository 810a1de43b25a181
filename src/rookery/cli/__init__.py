"""The command line interface.

Each command has one file, which is imported when the command runs. No other package imports this
one. Start reading at `main`, which dispatches to the ``run`` function of a command.
"""

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
from rookery.common.version import __version__
from rookery.errors import EnvFailed, RookeryError, UsageError

COMMANDS = {
    "train": "train a policy on parallel environments",
    "eval": "evaluate the checkpoint of a run",
    "watch": "show a run in the terminal while it trains",
    "report": "write an HTML report about runs",
    "plot": "plot the curves of runs in one picture",
    "tune": "find the fastest number of envs and workers, or search for hyperparameters",
    "bench": "measure how fast an env steps in rookery and in other libraries",
    "doctor": "check an env for problems that would break a run",
    "replay": "replay a crash report",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 1: an env or its process failed. 2: a usage error. 130: Ctrl-C.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        code = _dispatch(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # an error is raised here, not when Python exits
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
        if not is_left:  # a reader such as `head` may close the pipe: no message
            reason = error.strerror or error
            print(f"rookery: error: cannot write to standard output: {reason}", file=sys.stderr)
        # Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _is_output_full() -> bool:
    """Return whether writing to standard output fails."""
    try:
        print(flush=True)
    except OSError:
        return True
    return False


def _print_anything() -> None:
    """Print a question mark for each character that the output's encoding lacks.

    On Windows, redirected output has an encoding with 256 characters.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _of_the_env(error: RookeryError) -> str:
    """Return the traceback of an exception that an env raised; empty for other errors."""
    cause = error.__cause__
    if not isinstance(error, EnvFailed) or isinstance(error, UsageError) or cause is None:
        return ""
    # The messages of these suffice.
    if isinstance(cause, (ImportError, DependencyNotInstalled, UsageError)):
        return ""
    # Imported late, so that commands start fast.
    from rookery.worker.failures import RemoteTraceback

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
        print(f"rookery {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        near = did_you_mean(name, [*COMMANDS, "--help", "--version"])
        hint = f"{near} C" if near else "c"
        raise UsageError(f"unknown command {name!r}; {hint}hoose from {', '.join(COMMANDS)}")
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
    """Make modules of the current folder importable, as ``python -m`` does.

    Raises:
        UsageError: the current folder was deleted.
    """
    try:
        here = os.getcwd()  # absolute, as workers import the module too
    except FileNotFoundError as error:
        raise UsageError("the current folder was deleted; change to another one") from error
    if here not in sys.path:
        sys.path.insert(0, here)
