"""Measure contenders in turn, A B C A B C, each time in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.subjects import cases_of

ROOT = Path(__file__).resolve().parent.parent

Sample = dict[str, Any]


class ContenderFailed(Exception):
    """A contender's process printed no measurement."""


@dataclass
class CaseResult:
    """All samples of one case.

    Attributes:
        case: What was measured.
        samples: One list per contender, in order of repetition.
        failures: Why a contender was given up, by its name.
    """

    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        case = self.case
        return {
            "name": case.name,
            "title": case.title,
            "metric": case.metric,
            "num_envs": case.num_envs,
            "num_workers": case.num_workers,
            "busy_processes": case.busy_processes,
            "contenders": self.samples,
            "failures": self.failures,
        }


def run_subject(
    subject: str, quick: bool, names: Sequence[str] = (), repetitions: int | None = None
) -> Iterator[CaseResult]:
    """Run the cases of a subject, or only those named, one after the other."""
    for case in cases_of(subject, quick):
        if not names or case.name in names:
            yield _run_case(subject, case, quick, repetitions or case.repetitions)


def _run_case(subject: str, case: Case, quick: bool, repetitions: int) -> CaseResult:
    result = CaseResult(case)
    print(f"\n{case.title}", flush=True)
    for repetition in range(repetitions):
        for contender in case.contenders:
            if contender not in result.failures:
                _measure_into(result, subject, contender, quick, repetition)
    return result


def _measure_into(
    result: CaseResult, subject: str, contender: str, quick: bool, repetition: int
) -> None:
    case = result.case
    try:
        sample = _measure(subject, case, contender, quick, repetition)
    except ContenderFailed as error:
        result.failures[contender] = str(error)
        print(f"  {contender:28} given up: {error}", flush=True)
        return
    result.samples.setdefault(contender, []).append(sample)
    figures = "  ".join(f"{key} {_format(value)}" for key, value in sample.items())
    print(f"  {contender:28} {figures}", flush=True)


def _measure(subject: str, case: Case, contender: str, quick: bool, repetition: int) -> Sample:
    command = [sys.executable, "-m", "benchmarks.one", subject, case.name, contender]
    command += ["--repetition", str(repetition), *(["--quick"] if quick else [])]
    done = _run_elsewhere(command, case.timeout_s)
    if done.returncode != 0:
        last_line = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise ContenderFailed(last_line)
    sample: Sample = json.loads(done.stdout.strip().splitlines()[-1])
    return sample


def _run_elsewhere(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command in an empty folder: some simulators write logs where they are."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return subprocess.run(
                command,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ContenderFailed(f"no result within {timeout_s:.0f} s") from error


def _format(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
