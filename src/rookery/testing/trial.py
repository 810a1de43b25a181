"""Trials: a function in an interpreter of its own, which is ended when it does not get on."""

from __future__ import annotations

import faulthandler
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.common.pickling import by_value
from rookery.common.process_tree import end_with_children
from rookery.env import registrations
from rookery.testing.finding import Finding
from rookery.worker.failures import exit_in_words

_POLL_S = 0.02
_START_S = 120.0  # for an interpreter and its imports, on a slow machine
_THE_END = None  # the record that says so
_PROGRAM = "import sys; sys.path[:] = {path!r}; from rookery.testing import trial; trial.main()"


class Report:
    """What a trial has done so far, written where it survives the trial's end.

    Args:
        folder: where to write.
        deadline_s: seconds that one stage may take.
    """

    def __init__(self, folder: Path, deadline_s: float) -> None:
        self._records = (folder / "records").open("ab", buffering=0)
        self._stack = (folder / "stack").open("w")
        self._deadline_s = deadline_s

    def stage(self, name: str) -> None:
        """Say what comes next, and give it the whole deadline."""
        self._records.write(pickle.dumps(name))
        faulthandler.dump_traceback_later(self._deadline_s, file=self._stack)

    def found(self, check: str, verdict: Any, detail: str, way_out: str = "") -> None:
        """Note a finding."""
        self._records.write(pickle.dumps(Finding(check, verdict, detail, way_out)))

    def close(self) -> None:
        """There is nothing more to wait for: the trial has come to its end."""
        faulthandler.cancel_dump_traceback_later()
        self._records.write(pickle.dumps(_THE_END))
        self._records.close()
        self._stack.close()


@dataclass
class Outcome:
    """How a trial ended.

    Attributes:
        findings: what it found until then.
        stage: what it was doing last.
        has_ended: whether it came to its own end.
        trouble: what kept it from that; empty if nothing did.
        hung: whether that is time.
    """

    findings: list[Finding] = field(default_factory=list)
    stage: str = ""
    has_ended: bool = False
    trouble: str = ""
    hung: bool = False


def try_out(function: Callable[..., None], *args: Any, deadline_s: float) -> Outcome:
    """Call ``function(report, *args)`` in a fresh interpreter.

    Args:
        function: what to call; it travels by value, as its arguments do.
        args: its arguments.
        deadline_s: seconds that each stage of it may take; the process, and all it has started,
            is killed then.
    """
    with tempfile.TemporaryDirectory(prefix="rookery-trial-") as name:
        folder = Path(name)
        told = (str(folder), deadline_s, registrations.collect(), by_value((function, args)))
        (folder / "told").write_bytes(pickle.dumps(told))
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(path=sys.path), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # envs print
                stderr=stderr,
            )
        return _watched(process, folder, deadline_s)


def _watched(process: subprocess.Popen[bytes], folder: Path, deadline_s: float) -> Outcome:
    hung = False
    start_by = time.monotonic() + _START_S
    try:
        while process.poll() is None and not hung:
            hung = _has_written(folder / "stack") or (
                not _has_written(folder / "records") and time.monotonic() > start_by
            )
            time.sleep(_POLL_S)
    finally:
        end_with_children(process)
    complaint = (folder / "stderr").read_text(encoding="utf-8", errors="replace").strip()
    outcome = _recorded(folder / "records")
    if hung:
        outcome.hung = True
        outcome.trouble = f"did not end within {deadline_s:g} s{_place(folder / 'stack')}"
    elif not outcome.has_ended:  # whatever the exit code: an env may end its process with 0
        how = f"ended its process ({exit_in_words(process.returncode)})"
        outcome.trouble = f"{how}: {complaint.splitlines()[-1]}" if complaint else how
    return outcome


def _has_written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _recorded(path: Path) -> Outcome:
    outcome = Outcome()
    if not path.exists():
        return outcome
    with path.open("rb") as records:
        while True:
            try:
                record = pickle.load(records)
            except (EOFError, pickle.UnpicklingError):  # the last one may be cut short
                return outcome
            if isinstance(record, Finding):
                outcome.findings.append(record)
            elif record is _THE_END:
                outcome.has_ended = True
            else:
                outcome.stage = record


def _place(path: Path) -> str:
    """Where the main thread hangs, from the stacks that were written."""
    lines = (
        [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        if path.exists()
        else []
    )
    frames = [line for line in lines if line.startswith("File ")]
    own = [line for line in frames if f"{os.sep}rookery{os.sep}" not in line]
    return f"; it hangs in {(own or frames)[0]}" if frames else ""


def main() -> None:
    """What the process of a trial runs."""
    folder = Path(sys.argv[1])
    name, deadline_s, registered, told = pickle.loads((folder / "told").read_bytes())
    report = Report(Path(name), deadline_s)
    report.stage("unpickling the env's recipe")
    registrations.install(registered)
    function, args = pickle.loads(told)
    function(report, *args)
    report.close()
    os._exit(0)  # what an env leaves running, threads above all, is not waited for
