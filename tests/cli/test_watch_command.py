"""``rookery watch``, on folders as runs leave them."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from recorded_runs import metrics_rows, write_lines, write_run
from rich.console import Console

from rookery.cli import main, watch
from rookery.errors import StorageError
from rookery.report.live import LiveRun
from rookery.run.checkpoint.run_dir import RunDirectory


def _under_way(path: Path) -> Path:
    write_run(path, metrics_rows(30, 7500))
    RunDirectory(path).writer_file.write_text(str(os.getpid()))
    return path


def test_where_there_is_no_terminal_one_view_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _under_way(tmp_path / "run")
    before = {file: file.stat().st_mtime_ns for file in path.iterdir()}
    assert main(["watch", str(path)]) == 0
    captured = capsys.readouterr()
    assert "7.5k of 10k steps" in captured.out and captured.err == ""
    assert "\x1b" not in captured.out
    assert before == {file: file.stat().st_mtime_ns for file in path.iterdir()}


def test_a_finished_run_is_shown_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(write_run(tmp_path / "run")), "--once"]) == 0
    assert "finished: all steps made" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such"], "folder no/such does not exist"),
        (["."], "holds no run"),
        ([], "RUN_DIR"),
        ([".", "--interval", "0"], "--interval is '0'; it must be a number of seconds"),
        ([".", "--interval", "soon"], "--interval is 'soon'"),
        ([".", "--interval", "inf"], "--interval is 'inf'"),
        ([".", "--onse"], "did you mean --once?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["watch", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rookery: error: ") and message in line


class Steps:
    """Waits that do something each time; after the last one somebody presses Ctrl-C."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)

    def __call__(self, seconds: float) -> None:
        if not self._actions:
            raise KeyboardInterrupt
        self._actions.pop(0)()


def _follow(path: Path, *actions: Callable[[], object]) -> str:
    """Watch with `Steps`; returns what the terminal got."""
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=40, legacy_windows=False)
    assert watch._follow(LiveRun(path), console, 2.0, Steps(*actions)) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())


def test_the_view_goes_on_with_the_run_until_ctrl_c(tmp_path: Path) -> None:
    path = _under_way(tmp_path / "run")
    shown = _follow(path, lambda: write_lines(path / "metrics.jsonl", metrics_rows(38, 9500)))
    assert shown.index("7.5k of 10k steps") < shown.index("9.5k of 10k steps")
    assert "Ctrl-C closes this view; the run continues." in shown


def test_a_run_that_is_resumed_is_gone_on_with(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")

    def resume() -> None:
        _under_way(path)

    shown = _follow(path, resume)
    assert shown.index("finished: all steps made") < shown.index("● running")
    assert "was resumed or restarted" in shown


def test_a_folder_that_is_deleted_meanwhile_ends_the_view(tmp_path: Path) -> None:
    path = _under_way(tmp_path / "run")
    with pytest.raises(StorageError, match="was moved or deleted"):
        _follow(path, lambda: shutil.rmtree(path))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_on_a_terminal_it_stays_until_a_signal_and_restores_the_screen(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    import pty

    path = _under_way(tmp_path / "run")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    command = [sys.executable, "-m", "rookery", "watch", str(path), "--interval", "0.1"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as program:
        os.close(theirs)
        try:
            _read_until(ours, b"the run continues", program)
            program.send_signal(number)
            rest = _read_until(ours, b"\x1b[?1049l", program)  # the screen before comes back
            _, err = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
            os.close(ours)
    assert (program.returncode, err) == (code, b"")
    assert b"\x1b[?25h" in rest  # and the cursor


def _read_until(terminal: int, word: bytes, program: subprocess.Popen[bytes]) -> bytes:
    seen = b""
    deadline = time.monotonic() + PATIENCE_S
    while word not in seen:
        assert time.monotonic() < deadline and program.poll() is None, seen
        seen += os.read(terminal, 65536)
    return seen
