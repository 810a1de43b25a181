"""``rookery watch RUN_DIR``."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rookery.cli.arguments import CommandParser
from rookery.errors import ConfigError, MissingExtra
from rookery.report.live import LiveRun

if TYPE_CHECKING:
    from rich.console import Console

_FOOTER = "Ctrl-C closes this view; the run continues."
_LEAST_S = 0.1


def run(arguments: list[str]) -> int:
    """Show the run until Ctrl-C, or print one view."""
    command = _parser().parse_args(arguments)
    interval_s = _interval(command.interval)
    live = LiveRun(command.run_dir)
    console = _console()
    is_live = console.is_terminal and not console.is_dumb_terminal and not command.once
    try:
        if not is_live or live.figures().state.is_over:
            return _once(live, console)
        with _signals_end_the_program():
            return _follow(live, console, interval_s, time.sleep)
    except KeyboardInterrupt:
        return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery watch",
        description="Show a run in the terminal while it trains: returns, speed, where the time "
        "goes, workers, envs, memory and faults. It only reads the files of the run. Ctrl-C closes "
        "the view; the run continues. If the run is over, or standard output is not a terminal, "
        "the command prints one view and exits.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="folder of the run")
    parser.add_argument("--once", action="store_true", help="print one view and exit")
    parser.add_argument(
        "--interval",
        default="2",
        metavar="SECONDS",
        help="time between two updates of the view (%(default)s)",
    )
    return parser


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _LEAST_S <= seconds < math.inf:
        raise ConfigError(
            f"--interval is {text!r}; it must be a number of seconds, at least {_LEAST_S}"
        )
    return seconds


def _console() -> Console:
    try:
        from rich.console import Console
    except ImportError as error:
        raise MissingExtra("rookery watch needs: pip install 'rookery[train]'") from error
    return Console(highlight=False)


def _once(live: LiveRun, console: Console) -> int:
    from rookery.report.live_view import LiveView

    console.print(LiveView(live.figures()))
    return 0


def _follow(
    live: LiveRun, console: Console, interval_s: float, wait: Callable[[float], None]
) -> int:
    """Show the run on the alternate screen until Ctrl-C; then print the last view."""
    from rich.live import Live

    from rookery.report.live_view import LiveView

    figures = live.figures()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(LiveView(figures, console.height, _FOOTER), refresh=True)
                wait(interval_s)
                figures = live.figures()
    except KeyboardInterrupt:
        console.print(LiveView(figures))
        return 0


@contextmanager
def _signals_end_the_program() -> Iterator[None]:
    """Restore the screen before SIGTERM or SIGHUP ends the program."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, _end) for number in map(_number, names)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _number(name: str) -> signal.Signals:
    return signal.Signals[name]


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
