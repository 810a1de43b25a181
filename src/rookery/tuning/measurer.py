"""The parent's side of the measuring process: orders, deadlines and a memory limit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from rookery.common.importing import search_path
from rookery.common.process_tree import end_with_children, with_children
from rookery.tuning.halving import CandidateFailed
from rookery.tuning.measuring_process import Subject, pack
from rookery.tuning.memory import Ceiling, in_units, memory_of
from rookery.worker.failures import exit_in_words

_LOOK_S = 0.5  # interval between two checks of the memory
_START_S = 300.0  # for imports, which may take long on a slow disk
_PROGRAM = "from rookery.tuning.measuring_process import main; main()"


class Measurer:
    """A measuring process, which is replaced if a candidate kills it.

    Args:
        subject: run to measure.
        ceiling: largest amount of memory of the process and all its children.
        deadline_s: longest time of each stage of a candidate, in addition to the measured time.
    """

    def __init__(self, subject: Subject, ceiling: Ceiling, deadline_s: float) -> None:
        self._first_line = pack(subject)
        self._ceiling, self._deadline_s = ceiling, deadline_s
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._errors: IO[bytes] | None = None

    def ask(self, order: dict[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        """Send an order and return the result.

        Args:
            order: the order, see `rookery.tuning.measuring_process`.
            seconds: measured time that the order includes.

        Raises:
            CandidateFailed: the process failed, hung, died, or used too much memory.
        """
        if self._process is None:
            self._start()
        self._send(order)
        stage = "starting"
        while True:
            answer = self._next(stage, self._deadline_s + seconds)
            if "stage" in answer:
                stage = answer["stage"]
            elif "failed" in answer:
                raise CandidateFailed(answer["failed"])
            else:
                return answer

    def close(self) -> None:
        """End the process and all its children; a second call has no effect."""
        process, self._process = self._process, None
        if process is None:
            return
        end_with_children(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # unsent data is lost with the process
                    pipe.close()
        if self._errors is not None:
            self._errors.close()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._answers = SimpleQueue()
        # A new session: Ctrl-C in the terminal reaches only this process, which ends the other.
        process = self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            start_new_session=os.name == "posix",
            env={**os.environ, "PYTHONPATH": search_path()},
        )
        Thread(target=_read, args=(process.stdout, self._answers), daemon=True).start()
        self._write(self._first_line)
        self._next("importing what the run needs", _START_S)

    def _send(self, order: dict[str, Any]) -> None:
        self._write(json.dumps(order) + "\n")

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:  # the process died; reading the next answer raises
            return

    def _next(self, stage: str, seconds: float) -> dict[str, Any]:
        """Return the next answer, which must arrive within a number of seconds."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=_LOOK_S)
            except Empty:
                self._look_after(stage, end, seconds)
                continue
            if line is None:
                raise CandidateFailed(self._obituary(stage))
            answer: dict[str, Any] = json.loads(line)
            return answer

    def _look_after(self, stage: str, end: float, seconds: float) -> None:
        """End the process if it uses too much memory or time.

        Raises:
            CandidateFailed: the process was ended.
        """
        assert self._process is not None
        size = memory_of(with_children(self._process.pid))
        if size > self._ceiling.size_bytes:
            self.close()
            raise CandidateFailed(
                f"its processes grew to {in_units(size)} while {stage}, beyond the ceiling "
                f"{self._ceiling}"
            )
        if time.monotonic() > end:
            self.close()
            raise CandidateFailed(
                f"no answer within {seconds:.0f} s while {stage}: it hangs, or is too slow for "
                "the time of this search (--minutes)"
            )

    def _obituary(self, stage: str) -> str:
        """Describe how the process ended, with its last line of output."""
        process, errors = self._process, self._errors
        assert process is not None and errors is not None
        code = process.wait()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        last = f" ({lines[-1].strip()})" if lines else ""
        return f"the process {exit_in_words(code)} while {stage}{last}"


def _read(stream: IO[str], answers: SimpleQueue[str | None]) -> None:
    """Forward lines, and then None at the end of the stream."""
    with contextlib.suppress(ValueError):  # closed by the other thread
        for line in stream:
            answers.put(line)
    answers.put(None)
