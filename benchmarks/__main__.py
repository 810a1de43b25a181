"""Measure cases, write the results, and update their tables and pictures.

python -m benchmarks [CASE or KIND ...] [--rounds N] [--quick]
"""

from __future__ import annotations

import argparse

from benchmarks import report
from benchmarks.cases import CASES
from benchmarks.runner import QUICK_RESULTS, RESULTS, run_case, write

KINDS = tuple(dict.fromkeys(case.kind for case in CASES.values()))


def main() -> None:
    """Measure the requested cases."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", metavar="CASE", help=", ".join((*KINDS, *CASES)))
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender")
    parser.add_argument(
        "--quick", action="store_true", help="one short round, which changes no recorded result"
    )
    parser.add_argument("--report", action="store_true", help="only update tables and pictures")
    arguments = parser.parse_args()
    unknown = set(arguments.what) - {*KINDS, *CASES}
    if unknown:
        parser.error(
            f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join((*KINDS, *CASES))}"
        )
    folder = QUICK_RESULTS if arguments.quick else RESULTS
    for case in CASES.values() if not arguments.report else ():
        if not arguments.what or {case.name, case.kind} & set(arguments.what):
            result = run_case(case, 1 if arguments.quick else arguments.rounds, arguments.quick)
            write(folder, result)
            print("\n".join(report.table_of(result)), flush=True)
    if not arguments.quick:
        report.write()


if __name__ == "__main__":
    main()
