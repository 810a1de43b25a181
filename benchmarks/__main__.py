"""Measure subjects, write results and pictures, and bring the README's table up to date.

python -m benchmarks [SUBJECT ...] [--case NAME ...] [--repetitions N] [--quick]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import picture, readme_table, results
from benchmarks.conditions import read_conditions
from benchmarks.runner import run_subject
from benchmarks.subjects import SUBJECTS, TABULATED, load_subject


def main() -> None:
    arguments = _parse_arguments()
    folder = results.QUICK_RESULTS if arguments.quick else results.RESULTS
    for subject in arguments.subjects or SUBJECTS:
        conditions = read_conditions()
        for measured in run_subject(
            subject, arguments.quick, arguments.case, arguments.repetitions
        ):
            path = results.write_result(folder, subject, conditions, measured)
            print(f"\nwrote {path} and {_show(subject, folder)}", flush=True)
    if not arguments.quick:
        readme_table.main()


def _show(subject: str, folder: Path) -> Path:
    """Draw the picture of a subject's results, or write their table."""
    if subject in TABULATED:
        path: Path = load_subject(subject).write_report(folder)
        return path
    path = folder / f"{subject}.png"
    picture.draw(list(results.read_cases(folder, subject).values()), path)
    return path


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--case", nargs="+", default=[], help="only these cases of the subjects")
    parser.add_argument("--repetitions", type=int, help="instead of each case's own number")
    parser.add_argument(
        "--quick", action="store_true", help="once, shortly, small; changes no recorded result"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(
            f"unknown subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}"
        )
    return arguments


if __name__ == "__main__":
    main()
