"""One published test file, run with the peer's vector envs and with ours in their place."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import known

PEER, OURS = "sb3", "rookery"
CONTENDERS = (PEER, OURS)
_TIMEOUT_S = 3600.0


@dataclass
class Outcomes:
    """How each test ended, by ``file.py::test[params]``.

    Attributes:
        tests: ``"passed"``, ``"failed"`` or ``"skipped"``, and a line that says why.
        seconds: for the whole file, the start of pytest included.
    """

    tests: dict[str, tuple[str, str]]
    seconds: float

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(found == outcome for found, _ in self.tests.values())


@dataclass
class Comparison:
    """A test file with every contender."""

    package: str
    file: str
    outcomes: dict[str, Outcomes] = field(default_factory=dict)

    def worse(self) -> dict[str, str]:
        """The tests that the peer passes and we do not, with the reason of the failure."""
        ours = self.outcomes[OURS].tests
        return {
            test: ours.get(test, ("", "was not run"))[1]
            for test, (outcome, _) in self.outcomes[PEER].tests.items()
            if outcome == "passed" and ours.get(test, ("",))[0] != "passed"
        }

    def excused(self) -> dict[str, str]:
        """Those that cannot pass, with the reason."""
        found = {test: known.find(test, *known.EXCUSES) for test in self.worse()}
        return {test: f"{e.kind}: {e.reason}" for test, e in found.items() if e is not None}

    def unexplained(self) -> dict[str, str]:
        """Those that have no such excuse."""
        excused = self.excused()
        return {test: why for test, why in self.worse().items() if test not in excused}

    def own_process(self) -> dict[str, str]:
        """The tests whose envs had to stay in this process, with the reason."""
        found = {test: known.find(test, "own-process") for test in self.outcomes[OURS].tests}
        return {test: entry.reason for test, entry in found.items() if entry is not None}


def run_file(folder: Path, file: Path, contender: str, expensive: bool) -> Outcomes:
    """Run a test file in a process of its own.

    Args:
        folder: the unpacked tests of a package.
        file: one of them.
        contender: whose vector envs to use.
        expensive: whether to run what is marked as expensive or slow.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    command += ["-c", str(folder / "pyproject.toml")]
    if not expensive:
        command += ["-m", "not expensive and not slow"]
    if contender == OURS:
        command += ["-p", "replacement"]
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    # One thread: with more, torch's sums differ from run to run, and so do what policies learn.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        xml = Path(scratch) / "results.xml"
        log = folder / f"{file.stem}.{contender}.log"
        started = time.perf_counter()
        # A run that does not end has no results: its tests count as not run.
        with log.open("w") as output, suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [*command, f"--junitxml={xml}"],
                cwd=scratch,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_TIMEOUT_S,
                check=False,
            )
        seconds = time.perf_counter() - started
        if not xml.exists():
            return Outcomes({}, seconds)
        return Outcomes(_read(xml, file.name), seconds)


def _read(xml: Path, file_name: str) -> dict[str, tuple[str, str]]:
    outcomes = {}
    for case in ET.parse(xml).iter("testcase"):
        outcome, why = "passed", ""
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if child.tag == "skipped" else "failed"
                why = (child.get("message") or "").partition("\n")[0]
        outcomes[f"{file_name}::{case.get('name')}"] = (outcome, why)
    return outcomes
