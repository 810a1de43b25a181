"""Measure cases, write results, and bring tables and pictures of them up to date.

python -m benchmarks [CASE or KIND ...] [--rounds N] [--quick]
"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.cases import CASES
from benchmarks.runner import QUICK_RESULTS, RESULTS, run_case, write

KINDS = tuple(dict.fromkeys(case.kind for case in CASES.values()))


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="CASE", help=", ".join((*KINDS, *CASES)))
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender")
    parser.add_argument(
        "--quick", action="store_true", help="once, shortly; changes no recorded result"
    )
    parser.add_argument("--report", action="store_true", help="measure nothing")
    told = parser.parse_args()
    unknown = set(told.what) - {*KINDS, *CASES}
    if unknown:
        parser.error(
            f"unknown: {', '.join(sorted(unknown))}; there are {', '.join((*KINDS, *CASES))}"
        )
    folder = QUICK_RESULTS if told.quick else RESULTS
    for case in CASES.values() if not told.report else ():
        if not told.what or {case.name, case.kind} & set(told.what):
            result = run_case(case, 1 if told.quick else told.rounds, told.quick)
            write(folder, result)
            print("\n".join(report.table_of(result)), flush=True)
    if not told.quick:
        report.write()


if __name__ == "__main__":
    main()
