"""Passed, failed and skipped, side by side; on the terminal and in the results file."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
from collections import Counter
from collections.abc import Sequence
from typing import Any

from published import PACKAGES, ROOT
from suite import CONTENDERS, Comparison, Outcomes

RESULTS = ROOT / "benchmarks" / "results" / "outside.json"

_HEAD = f"{'passed / failed / skipped':<44}{'sb3':>16}{'rookery':>16}   of the failed"


def print_row(comparison: Comparison, is_first: bool) -> None:
    """Print one test file's counts, below a head if it is the first."""
    if is_first:
        print(_HEAD)
    counts = [_counts(comparison.outcomes[contender]) for contender in CONTENDERS]
    excused, unexplained = len(comparison.excused()), len(comparison.unexplained())
    notes = [f"{excused} cannot pass"] * bool(excused)
    notes += [f"{unexplained} UNEXPLAINED"] * bool(unexplained)
    name = f"{comparison.package}/{comparison.file}"
    print(f"{name:<44}{counts[0]:>16}{counts[1]:>16}   {', '.join(notes)}".rstrip(), flush=True)


def print_exceptions(comparisons: Sequence[Comparison]) -> None:
    """Print every test that is special, with the reason, and the sums."""
    for title, pick in (
        ("Cannot pass:", Comparison.excused),
        ("Failed without an excuse:", Comparison.unexplained),
        ("Ran with envs in the test's own process:", Comparison.own_process),
    ):
        tests = {test: why for comparison in comparisons for test, why in pick(comparison).items()}
        if tests:
            print(f"\n{title}")
        for test, why in tests.items():
            print(f"  {test}: {why}")
    sums = [sum((_tally(c.outcomes[name]) for c in comparisons), Counter()) for name in CONTENDERS]
    print(
        "\n"
        + "; ".join(
            f"{name}: {s['passed']} passed, {s['failed']} failed, {s['skipped']} skipped"
            for name, s in zip(CONTENDERS, sums, strict=True)
        )
    )


def write(comparison: Comparison) -> None:
    """Record a test file's counts beside those of the others."""
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"files": {}}
    files = recorded["files"]
    files[f"{comparison.package}/{comparison.file}"] = _as_json(comparison)
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("rookery", *PACKAGES, "gymnasium", "torch", "numpy")
        },
        "files": dict(sorted(files.items())),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def _as_json(comparison: Comparison) -> dict[str, Any]:
    counts = {
        name: {**_tally(outcomes), "seconds": round(outcomes.seconds)}
        for name, outcomes in comparison.outcomes.items()
    }
    return {
        **counts,
        "excused": comparison.excused(),
        "unexplained": {
            test: why.replace(str(ROOT), ".") for test, why in comparison.unexplained().items()
        },
        "own_process": comparison.own_process(),
    }


def _tally(outcomes: Outcomes) -> Counter[str]:
    return Counter({name: outcomes.count(name) for name in ("passed", "failed", "skipped")})


def _counts(outcomes: Outcomes) -> str:
    return " / ".join(str(count) for count in _tally(outcomes).values())
