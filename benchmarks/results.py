"""Results as files, and the figures that are read from them."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.runner import ROOT, CaseResult

RESULTS = ROOT / "benchmarks" / "results"
QUICK_RESULTS = ROOT / ".benchmarks"  # not kept: too short to mean anything

CaseJson = dict[str, Any]


def write_result(
    folder: Path, subject: str, conditions: dict[str, Any], result: CaseResult
) -> Path:
    """Write the samples of a case; other cases of an earlier run stay."""
    path = folder / f"{subject}.json"
    fresh = {**result.as_json(), "conditions": conditions}
    cases = {**read_cases(folder, subject), result.case.name: fresh}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"subject": subject, "cases": list(cases.values())}, indent=1)
    path.write_text(text + "\n")
    return path


def read_cases(folder: Path, subject: str) -> dict[str, CaseJson]:
    """Read a subject's cases by name; empty if it was never measured."""
    path = folder / f"{subject}.json"
    if not path.exists():
        return {}
    return {case["name"]: case for case in json.loads(path.read_text())["cases"]}


def values(case: CaseJson, contender: str, metric: str) -> list[float]:
    """List a contender's samples of a metric, in order of repetition."""
    return [float(sample[metric]) for sample in case["contenders"].get(contender, ())]


def median(case: CaseJson, contender: str, metric: str) -> float | None:
    """Median of a contender's samples, or None if it was not measured."""
    samples = values(case, contender, metric)
    return statistics.median(samples) if samples else None


def median_ratio(case: CaseJson, above: str, below: str, metric: str) -> float | None:
    """Median of the ratios of neighbouring samples, so that a drift of the machine cancels."""
    pairs = zip(values(case, above, metric), values(case, below, metric), strict=False)
    ratios = [numerator / denominator for numerator, denominator in pairs]
    return statistics.median(ratios) if ratios else None
