"""This side of the process that measures: orders, deadlines, and an eye on its memory."""

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

from rookery.common.process_tree import end_with_children, with_children
from rookery.tuning.halving import CandidateFailed
from rookery.tuning.measurer import Subject, pack
from rookery.tuning.memory import Ceiling, in_units, memory_of
from rookery.worker.failures import exit_in_words

_LOOK_S = 0.5  # between two looks at the memory of what is measured
_START_S = 300.0  # for importing what a run needs; a slow disk takes long
_PROGRAM = "from rookery.tuning.measurer import main; main()"


class Measurer:
    """Keeps one process that measures, and replaces it when a candidate has taken it along.

    Args:
        subject: what is measured.
        ceiling: the most memory that the process and all its children may take.
        deadline_s: how long each stage of a candidate may take, beside the time it is measured for.
    """

    def __init__(self, subject: Subject, ceiling: Ceiling, deadline_s: float) -> None:
        self._first_line = pack(subject)
        self._ceiling, self._deadline_s = ceiling, deadline_s
        self._process: subprocess.Popen[str] | None = None
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._errors: IO[bytes] | None = None

    def ask(self, order: dict[str, Any], seconds: float = 0.0) -> dict[str, Any]:
        """Have an order obeyed, and return what came of it.

        Args:
            order: see `rookery.tuning.measurer`.
            seconds: that it takes by itself.

        Raises:
            CandidateFailed: it failed, hung, died, or took too much memory.
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
        """End the process and all that came of it; twice is fine."""
        process, self._process = self._process, None
        if process is None:
            return
        end_with_children(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent any more is lost with it
                    pipe.close()
        if self._errors is not None:
            self._errors.close()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the present process and all that came of it; for those who look after them."""
        if self._process is None:
            return ()
        return tuple(process.pid for process in with_children(self._process.pid))

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._answers = SimpleQueue()
        # A session of its own: Ctrl-C at the terminal is for this process, which then ends that.
        process = self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            start_new_session=os.name == "posix",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
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
        except OSError:  # it has ended, which the next answer tells
            return

    def _next(self, stage: str, seconds: float) -> dict[str, Any]:
        """The next answer; what is waited for must come within so many seconds."""
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
        """End what takes too much memory or time.

        Raises:
            CandidateFailed: it did.
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
        """How the process ended, and the last it said."""
        process, errors = self._process, self._errors
        assert process is not None and errors is not None
        code = process.wait()
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        last = f" ({lines[-1].strip()})" if lines else ""
        return f"the process {exit_in_words(code)} while {stage}{last}"


def _read(stream: IO[str], answers: SimpleQueue[str | None]) -> None:
    """Hand on lines until they end, and then None."""
    with contextlib.suppress(ValueError):  # closed by the other thread
        for line in stream:
            answers.put(line)
    answers.put(None)
