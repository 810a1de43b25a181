"""Programs of their own, as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from patience import PATIENCE_S


def started(script: str, temporary: Path) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start Python code; see `started_program`."""
    return started_program(["-c", script], temporary)


@contextmanager
def started_program(arguments: Sequence[str], temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Start Python; end it with the block, whatever happens there.

    Args:
        arguments: of Python.
        temporary: folder for what the program leaves in the temporary folder.
    """
    program = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    with program:  # waits for its end
        try:
            yield program
        finally:
            program.kill()


def output_of(script: str, arguments: Sequence[str] = (), **options: Any) -> str:
    """Run a script to its end, which must be a good one; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
