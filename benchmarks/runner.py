"""Measure contenders in rounds, in random order, each sample in a new process."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import ALWAYS, Case
from benchmarks.clocks import Sample
from benchmarks.peers import ROOT, NotInstalled, interpreter_for, library_of
from rookery.bench.conditions import conditions, load
from rookery.run.log.terminal import Counter

RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / ".benchmarks"  # too short to be meaningful, so not recorded
_LIBRARIES = (
    "rookery", "gymnasium", "numpy", "torch", "mujoco", "ale-py", "stable-baselines3", "torchrl",
)  # fmt: skip
_NEAR = 0.5  # share of the library's best that a variant must reach to stay
_TIMEOUT_S = 600.0


class ContenderFailed(Exception):
    """A contender's process printed no measurement."""


@dataclass
class Result:
    """All samples of one case.

    Attributes:
        case: the measured case.
        conditions: machine, versions and load.
        samples: samples of each contender, by round.
        failures: reason of each failed contender, by name.
    """

    case: Case
    conditions: dict[str, Any]
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, contender: str) -> list[float]:
        """Return the results of a contender."""
        return [float(sample["value"]) for sample in self.samples.get(contender, ())]

    def median(self, contender: str) -> float:
        """Return the median result of a contender."""
        return statistics.median(self.values(contender))

    def best_of(self, library: str) -> str | None:
        """Return the fastest contender of a library; None if all were dropped."""
        whole = [name for name in self.measured_to_the_end() if library_of(name) == library]
        return min(whole, key=self.slowness, default=None)

    def measured_to_the_end(self) -> list[str]:
        """Return the contenders that took part in every round so far."""
        rounds = max(map(len, self.samples.values()), default=0)
        return [name for name, samples in self.samples.items() if len(samples) == rounds]

    def slowness(self, contender: str) -> float:
        """Return a number that is smaller for faster contenders."""
        median = self.median(contender)
        return median if self.case.unit == "s" else 1 / median

    def goes_on(self, contender: str, round_: int) -> bool:
        """Return whether a contender takes part in this round."""
        if contender in self.failures:
            return False
        if round_ == 0 or contender in ALWAYS:
            return True
        own = [name for name in self.samples if library_of(name) == library_of(contender)]
        best = min(own, key=self.slowness, default=None)
        return best is None or self.slowness(best) / self.slowness(contender) >= _NEAR

    def as_json(self) -> dict[str, Any]:
        """Return the content of the results file."""
        return {
            "case": self.case.name,
            "conditions": self.conditions,
            "samples": self.samples,
            "failures": self.failures,
        }


def run_case(case: Case, rounds: int, quick: bool, seed: int = 0) -> Result:
    """Measure all contenders of a case."""
    result = Result(case, {})
    for contender in case.contenders:
        try:
            interpreter_for(contender)  # may install packages, so before the measurement
        except NotInstalled as error:
            result.failures[contender] = str(error)
    result.conditions |= {**conditions(_LIBRARIES), "commit": _commit()}
    with Counter(rounds * len(case.contenders), "samples") as counter:
        for round_ in range(rounds):
            order = random.Random(seed + round_).sample(case.contenders, len(case.contenders))
            going = {name for name in order if result.goes_on(name, round_)}
            for contender in order:
                counter.doing(f"{case.name}: {contender}")
                told = _take(result, contender, quick, round_) if contender in going else ""
                counter.done(told)
    result.conditions["load_average_after"] = load()
    return result


def _take(result: Result, contender: str, quick: bool, round_: int) -> str:
    """Take one sample; return a message after a failure, else an empty text."""
    try:
        sample = _measure(result.case, contender, quick, round_)
    except ContenderFailed as error:
        result.failures[contender] = str(error)
        return f"{result.case.name}: {contender} failed: {error}"
    result.samples[contender].append(sample)
    return ""


def _measure(case: Case, contender: str, quick: bool, round_: int) -> Sample:
    command = [interpreter_for(contender), "-m", "benchmarks.one", case.name, contender]
    command += ["--seed", str(round_), *(["--quick"] if quick else [])]
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # some simulators write logs into the current folder
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ContenderFailed(f"no result within {_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ContenderFailed(lines[-1] if lines else f"exit code {done.returncode}")
    sample: Sample = json.loads(done.stdout.strip().splitlines()[-1])
    return sample


def _commit() -> str:
    """Return the commit, with ``-dirty`` if the measured code has other changes."""
    changed = _git("status", "--porcelain", "--", "src", "benchmarks", ":!benchmarks/results")
    return _git("describe", "--always") + "-dirty" * bool(changed)


def _git(*words: str) -> str:
    command = ["git", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(folder: Path, result: Result) -> Path:
    """Write the result of a case."""
    folder = folder / "speed"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.case.name}.json"
    path.write_text(json.dumps(result.as_json(), indent=1) + "\n")
    return path


def read(folder: Path, case: Case) -> Result | None:
    """Read the result of a case, with the contenders it has now; None if there is none."""
    path = folder / "speed" / f"{case.name}.json"
    if not path.exists():
        return None
    found = json.loads(path.read_text())
    samples, failures = (
        {name: value for name, value in found[part].items() if name in case.contenders}
        for part in ("samples", "failures")
    )
    return Result(case, found["conditions"], samples, failures)
