"""Trials: checks that run in a separate interpreter, which is killed if it hangs."""

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
from typing import Any, Literal

from rookery.common.pickling import by_value
from rookery.common.process_tree import end_with_children
from rookery.env import registrations
from rookery.worker.failures import exit_in_words

_PACKAGE = Path(__file__).parent.parent  # a user's folder may be named rookery, too
_POLL_S = 0.02
_START_S = 120.0  # for an interpreter and its imports, on a slow machine
_THE_END = None  # the last record
_PROGRAM = "import sys; sys.path[:] = {path!r}; from rookery.testing import trial; trial.main()"

Verdict = Literal["ok", "note", "fail"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: name of the check.
        verdict: ``"ok"``, ``"note"`` (good to know) or ``"fail"`` (would break a run).
        detail: what the check found.
        way_out: what to do about it, or empty.
    """

    check: str
    verdict: Verdict
    detail: str
    way_out: str = ""

    def __str__(self) -> str:
        way_out = f" -> {self.way_out}" if self.way_out else ""
        return f"{self.verdict:4}  {self.check}: {self.detail}{way_out}"


class Report:
    """The findings of a trial, written to files, so that they survive the death of its process.

    Args:
        folder: where to write.
        deadline_s: seconds that one stage may take.
    """

    def __init__(self, folder: Path, deadline_s: float) -> None:
        self._records = (folder / "records").open("ab", buffering=0)
        self._stack = (folder / "stack").open("w")
        self._deadline_s = deadline_s

    def stage(self, name: str) -> None:
        """Record the name of the next stage, and restart the deadline."""
        self._records.write(pickle.dumps(name))
        faulthandler.dump_traceback_later(self._deadline_s, file=self._stack)

    def found(self, check: str, verdict: Any, detail: str, way_out: str = "") -> None:
        """Record a finding."""
        self._records.write(pickle.dumps(Finding(check, verdict, detail, way_out)))

    def close(self) -> None:
        """Record that the trial has finished."""
        faulthandler.cancel_dump_traceback_later()
        self._records.write(pickle.dumps(_THE_END))
        self._records.close()
        self._stack.close()


@dataclass
class TrialOutcome:
    """The end of a trial.

    Attributes:
        findings: the findings so far.
        stage: the last stage.
        has_ended: True if the trial finished.
        trouble: why it did not finish, or empty.
        hung: True if it missed the deadline.
    """

    findings: list[Finding] = field(default_factory=list)
    stage: str = ""
    has_ended: bool = False
    trouble: str = ""
    hung: bool = False


def try_out(function: Callable[..., None], *args: Any, deadline_s: float) -> TrialOutcome:
    """Call ``function(report, *args)`` in a fresh interpreter.

    Args:
        function: the function; it is pickled by value.
        args: its arguments, pickled by value.
        deadline_s: seconds that each stage may take; then the process and all its children are
            killed.
    """
    with tempfile.TemporaryDirectory(prefix="rookery-trial-") as name:
        folder = Path(name)
        task = (str(folder), deadline_s, registrations.collect(), by_value((function, args)))
        (folder / "task").write_bytes(pickle.dumps(task))
        with (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM.format(path=sys.path), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # envs print
                stderr=stderr,
            )
        return _watched(process, folder, deadline_s)


def _watched(process: subprocess.Popen[bytes], folder: Path, deadline_s: float) -> TrialOutcome:
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
    elif not outcome.has_ended:  # the exit code does not matter: an env may exit with 0
        how = f"ended its process ({exit_in_words(process.returncode)})"
        outcome.trouble = f"{how}: {complaint.splitlines()[-1]}" if complaint else how
    return outcome


def _has_written(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _recorded(path: Path) -> TrialOutcome:
    outcome = TrialOutcome()
    if not path.exists():
        return outcome
    with path.open("rb") as records:
        while True:
            try:
                record = pickle.load(records)
            except (EOFError, pickle.UnpicklingError):  # the last record may be incomplete
                return outcome
            if isinstance(record, Finding):
                outcome.findings.append(record)
            elif record is _THE_END:
                outcome.has_ended = True
            else:
                outcome.stage = record


def _place(path: Path) -> str:
    """Return the place where the main thread hangs, from the recorded stacks."""
    lines = (
        [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        if path.exists()
        else []
    )
    frames = [line for line in lines if line.startswith("File ")]
    outside = [line for line in frames if f'"{_PACKAGE}{os.sep}' not in line]
    return f"; it hangs in {(outside or frames)[0]}" if frames else ""


def main() -> None:
    """Run a trial; the entry point of its process."""
    folder = Path(sys.argv[1])
    name, deadline_s, registered, task = pickle.loads((folder / "task").read_bytes())
    report = Report(Path(name), deadline_s)
    report.stage("unpickling the env's recipe")
    registrations.install(registered)
    function, args = pickle.loads(task)
    function(report, *args)
    report.close()
    os._exit(0)  # without waiting for threads that the env left running
