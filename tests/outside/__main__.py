"""Run the published tests of Stable-Baselines3 and sb3-contrib on their vector envs and on ours.

scripts/outside [FILE ...] [--expensive]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import report
from published import PACKAGES, fetch
from suite import CONTENDERS, Comparison, run_file

# Left out by default: they make no vector env, or test the library's parts one by one.
_UNRELATED = {
    "test_buffers.py",
    "test_custom_policy.py",
    "test_distributions.py",
    "test_env_checker.py",
    "test_logger.py",
    "test_preprocessing.py",
}


def main() -> int:
    """Run the test files asked for; 0 if every test that has to pass did."""
    arguments = _parse_arguments()
    comparisons = []
    for package in PACKAGES:
        folder = fetch(package)
        for file in _files(package, folder, arguments.files):
            comparison = Comparison(package, file.name)
            for contender in CONTENDERS:
                comparison.outcomes[contender] = run_file(
                    folder, file, contender, arguments.expensive
                )
            report.print_row(comparison, is_first=not comparisons)
            report.write(comparison)
            comparisons.append(comparison)
    if not comparisons:
        sys.exit(f"no test file is named {' or '.join(arguments.files)}")
    report.print_exceptions(comparisons)
    return int(any(comparison.unexplained() for comparison in comparisons))


def _files(package: str, folder: Path, names: list[str]) -> list[Path]:
    files = sorted((folder / "tests").glob("test_*.py"))
    if names:
        return [file for file in files if {file.name, f"{package}/{file.name}"} & {*names}]
    return [file for file in files if file.name not in _UNRELATED]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/outside", description=__doc__.splitlines()[0])
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="test_vec_envs.py, sb3-contrib/test_run.py"
    )
    parser.add_argument(
        "--expensive", action="store_true", help="with what their authors call expensive or slow"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
