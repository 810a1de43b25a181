"""Run examples one after the other, each as a script of its own.

    python tests/run_examples.py FILE.json

The file lists ``{"path", "raises", "says"}``. An example without ``raises`` must print something;
of the others the error must be of that name, and its message must be ``says``, in which ``...``
stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

_NUMPYS_NUMBER = re.compile(r"np\.\w+\(([-\w.]+)\)")  # numpy 1 writes the number alone


def fault_of(path: str, raises: str | None, says: str) -> str:
    """Run one example and say what is wrong with it; empty if nothing is."""
    printed, before = io.StringIO(), Path.cwd()
    folder = Path(path).with_suffix("")  # no example sees what another one has left
    folder.mkdir()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
    except BaseException as error:
        if raises is None:
            return traceback.format_exc()
        if type(error).__name__ != raises:
            return f"raised {error!r} instead of {raises}"
        return "" if fits(says, str(error)) else f"said {error}\ninstead of {says}"
    finally:
        os.chdir(before)
        _lift_limits()
    if raises is not None:
        return f"did not raise {raises}"
    return "" if printed.getvalue() else "printed nothing"


def fits(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern says, but for spaces and what ``...`` stands for."""
    pattern, text = (_NUMPYS_NUMBER.sub(r"\1", each) for each in (pattern, text))
    parts = [r"\s+".join(map(re.escape, part.split())) for part in pattern.split("...")]
    return re.fullmatch(r"\s*" + r"[\s\S]*".join(parts) + r"\s*", text) is not None


def _lift_limits() -> None:
    """Take back what an example has done to show what happens at a limit."""
    try:
        import resource
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def main(path: str) -> int:
    """Run all and print what is wrong; 1 if anything is."""
    examples: list[dict[str, Any]] = json.loads(Path(path).read_text())
    faults = {each["path"]: fault_of(**each) for each in examples}
    for name, fault in faults.items():
        if fault:
            print(f"{name}: {fault}", file=sys.stderr)
    return int(any(faults.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
